"""``vicinal losses``: list losses, miners and samplers, or show one."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows

if TYPE_CHECKING:
    from vicinal.report.losses import MethodSheet

losses = typer.Typer(
    help="Losses, miners and samplers: their labels, settings and papers.",
    invoke_without_command=True,
    epilog="Examples: vicinal losses --labels numbers  |  vicinal losses --kind miners  |  vicinal losses show supcon",
)
app.add_typer(losses, name="losses")

_HEADINGS = ["name", "used by", "labels", "settings", "paper"]
_SHOWN = ("pairs", "proxies", "class scores", "predictions", "teachers", "regularizers")
Kind: TypeAlias = Annotated[
    str,
    o.described(
        "losses (all kinds of them), pairs, proxies, class scores, predictions, teachers, regularizers, miners, "
        "samplers or all."
    ),
]
Labels: TypeAlias = Annotated[
    o.Name, o.described("Only methods for these labels: classes, several, graded, numbers, groups, scores, none.")
]


@losses.callback()
def listing(context: typer.Context, *, kind: Kind = "losses", labels: Labels = None, as_json: o.AsJson = False) -> None:
    """List losses (also miners and samplers): name, commands that use them, labels, settings with defaults, paper."""
    if context.invoked_subcommand is not None:
        return
    from vicinal.core import check_choice
    from vicinal.report import LABELS
    from vicinal.report.losses import KINDS as METHOD_KINDS
    from vicinal.report.losses import method_sheets

    if labels is not None:
        check_choice("--labels", labels, LABELS)
    sheets = [sheet for one in _kinds(kind) for sheet in method_sheets(one) if labels is None or labels in sheet.labels]
    if as_json:
        print_json([sheet.as_json() for sheet in sheets])
        return
    for one in _kinds(kind):
        rows = [[s.name, s.used, ", ".join(s.labels), s.defaults, s.paper] for s in sheets if s.kind == one]
        if rows:
            print_rows(METHOD_KINDS[one], _HEADINGS, rows, numbers=False, names=True)
    if not sheets:
        output.print(f"none takes {labels}: {LABELS[labels or 'none']}")
    if kind == "losses":
        output.print("vicinal losses show NAME tells more; --kind miners and --kind samplers list those")


def _kinds(kind: str) -> tuple[str, ...]:
    """The kinds of methods that ``--kind`` names."""
    from vicinal.core import check_choice
    from vicinal.report.losses import KINDS as METHOD_KINDS

    check_choice("--kind", kind, ("losses", *METHOD_KINDS, "all"))
    return {"losses": _SHOWN, "all": tuple(METHOD_KINDS)}.get(kind, (kind,))


@losses.command(epilog="Example: vicinal losses show supcon")
def show(
    name: Annotated[str, o.argument("A loss, miner or sampler.")],
    *,
    kind: Kind = "all",
    as_json: o.AsJson = False,
) -> None:
    """Show one: formula, settings with defaults and ranges, labels, paper, how it was verified, how to use it."""
    from vicinal.report.losses import find_sheets

    sheets = find_sheets(name, _kinds(kind))
    if as_json:
        print_json([sheet.as_json() for sheet in sheets])
        return
    for sheet in sheets:
        _print_sheet(sheet)


def _print_sheet(sheet: "MethodSheet") -> None:
    from vicinal.report import LABELS

    output.print(f"\n[bold]{sheet.name}[/bold] ({sheet.kind}: {sheet.family})", markup=True)
    for paragraph in (sheet.summary, sheet.formula, *sheet.more):
        if paragraph:
            output.print(f"\n  {paragraph}")
    if sheet.settings:
        output.print()
        print_rows(
            "Settings", ["name", "default", "meaning and range"], [list(s) for s in sheet.settings], numbers=False
        )
    labels = "; ".join(f"{label} ({LABELS[label]})" for label in sheet.labels)
    output.print(f"labels    {labels}")
    output.print(f"used by   {sheet.used}")
    output.print(f"paper     {sheet.paper or '-'}")
    output.print(f"verified  against {sheet.verified}" if sheet.verified else "verified  -")
    output.print("\nuse", style="bold")
    for line in sheet.python.splitlines():
        output.print(f"    {line}" if line else "")
    if sheet.command:
        output.print(f"\n    {sheet.command}")
