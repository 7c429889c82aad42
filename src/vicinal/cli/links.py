"""``vicinal links``: list the links, or draw one."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows

links = typer.Typer(
    help="Links of matching losses: where a loss is sensitive.",
    invoke_without_command=True,
    epilog='Example: vicinal links show "sinh(scale=.5)+0.2*sigmoid" --out link.png',
)
app.add_typer(links, name="links")


@links.callback()
def listing(context: typer.Context, *, as_json: o.AsJson = False) -> None:
    """List the links: formula, region of sensitivity, whether bounded, slopes at three scores."""
    if context.invoked_subcommand is not None:
        return
    from vicinal.report.links import link_rows

    headings = ["link", "formula", "sensitive", "bounded", "slope at -3", "at 0", "at 3"]
    rows = link_rows()
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
    else:
        print_rows("Links", headings, rows, numbers=False)


@links.command(epilog='Example: vicinal links show "sinh(scale=.5)+0.2*sigmoid" --out link.png')
def show(
    link: Annotated[str, o.argument("A link or a sum of links, as text.")],
    *,
    out: Annotated[Path, o.described("Picture to write: png, svg or pdf.")] = Path("link.png"),
) -> None:
    """Draw a link: its curve, its slope, its matching losses, and the composite softmax loss of two classes."""
    from vicinal.core import check_choice, replaced_file
    from vicinal.links import parse
    from vicinal.losses.validity import check_link
    from vicinal.report.links import link_figure

    check_choice("--out", out.suffix, (".png", ".svg", ".pdf"))
    curve = parse(link)
    check_link(curve)
    figure = link_figure(curve, link)
    with replaced_file(out) as aside:
        figure.savefig(aside, format=out.suffix[1:], dpi=150)
    output.print(f"picture  {out}")
    if curve.note:
        output.print(curve.note)
