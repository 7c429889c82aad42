"""``vicinal explain``: the rows behind a prediction."""

import math
from typing import TYPE_CHECKING, Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import cell_words, label_words, output, print_json, print_rows

if TYPE_CHECKING:
    from vicinal.estimators import PairExplanation
    from vicinal.workflows.explain import Explained, Explainer

_CELLS, _CLASSES = 3, 5
"""Most cells of a row, and classes, to show."""

_CARRIED = 0.5
"""Share of the weight below which more rows are worth listing."""

_SCALES = {"link": " (h)", "quantile": " (share)"} | dict.fromkeys(("rank", "softmax", "power"), " (score)")
"""What is behind the heading of contributions, by the scale of an explanation."""


@app.command(
    epilog="Examples: vicinal explain houses-model --id h12  |  vicinal explain houses-model --row "
    "'{\"area\": 900}'  |  vicinal explain houses-model new.csv -k 3"
)
@o.with_options(o.AIM, o.MODEL, o.ANSWER)
def explain(
    model: Annotated[str, o.argument("Folder of `vicinal fit`, or of `vicinal match`.", "MODEL")],
    data: Annotated[o.Name, o.argument("Table whose rows are explained, as --file.", "DATA")] = None,
    *,
    row_id: Annotated[
        o.Names,
        o.described("Id of a row of the bank, or of DATA; of a matcher two, left and right.", "--id", metavar="ID"),
    ] = None,
    row: Annotated[
        o.Name, o.described('A row as JSON: {"size": 3}; other columns are left empty.', metavar="JSON")
    ] = None,
    file: Annotated[o.Name, o.described("The table, if it is not the second argument.", metavar="FILE")] = None,
    k: Annotated[int, o.described("Number of bank rows to list for each.", "-k", "--k")] = 5,
    interval: Annotated[
        float, o.described("Probability that the interval contains the truth.", metavar="COVERAGE")
    ] = 0.9,
    target: Annotated[o.Name, o.described("For a model of several targets, the one to explain.")] = None,
    plot: Annotated[
        o.Name, o.described("Also draw the first rows to this file: .svg, .png or .pdf.", metavar="FILE")
    ] = None,
    include_own: o.IncludeOwn = False,
    **options: Any,
) -> None:
    """Show the rows behind a prediction, how much each adds, and how uncertain the prediction is.

    Rows of the bank (--id) are predicted without themselves. Of a matcher: what each column says of two rows.
    """
    from vicinal.core.checks import check_between, check_choice, check_integer, local_path
    from vicinal.core.folders import kind_of
    from vicinal.workflows.explain import DRAWN, Explainer, draw_reasons, explain_pair, explained_record, pair_record

    values = (("DATA", data), ("--file", file), ("--id", row_id), ("--row", row))
    chosen = [name for name, value in values if value is not None]
    if len(chosen) != 1 and chosen not in (["DATA", "--id"], ["--file", "--id"]):
        raise ValueError(f"query: expected one of DATA, --id and --row, got {' and '.join(chosen) or 'none'}")
    file = file or data
    check_integer("-k", k)
    check_between("--interval", interval, 0, 1)
    source = o.table_of(file, options, "--file")
    drawing = None if plot is None else local_path("--plot", plot, written=True)
    if drawing is not None:
        check_choice("--plot", drawing.suffix.lower(), DRAWN)
    folder = o.folder_of(model)
    if kind_of(folder) == "matcher":
        pair = explain_pair(folder, row_id or [], k)
        if drawing is not None:
            draw_reasons([pair], drawing)
        if options["as_json"]:
            print_json(pair_record(pair))
        else:
            _print_pair(pair)
        return
    explainer = Explainer(
        folder,
        k,
        coverage=interval,
        target=target,
        include_own=include_own,
        aim=o.aim_of(options),
        **o.opened(options),
    )
    if row is not None:
        rows = explainer.row(row)
    else:
        rows = explainer.ids(row_id or []) if source is None else explainer.table(source, row_id or ())
    if drawing is not None:
        draw_reasons(rows, drawing)
    if options["as_json"]:
        print_json([explained_record(one) for one in rows])
    else:
        _print_all(rows, explainer)


def _print_all(rows: "list[Explained]", explainer: "Explainer") -> None:
    if sentence := explainer.model.target_transform_.sentence:
        output.print(f"{sentence[0].upper()}{sentence[1:]}.")
    if any(one.explanation.transform == "log" for one in rows):
        output.print("Rows move the start by percentages that multiply.")
    if sentence := explainer.noise:
        output.print(sentence)
    for one in rows:
        _print_explained(one, explainer)
    explanations = [one.explanation for one in rows]
    if any(n.weight < 0 and isinstance(n.label, float) for one in explanations for n in one.brief().neighbors):
        output.print("A negative weight corrects for rows alike that would together count too much.")
    sums = [(sum(abs(n.weight) for n in one.neighbors), abs(one.other_weight)) for one in explanations]
    shares = [listed / (listed + others) for listed, others in sums if listed + others > 0]
    if any(share < _CARRIED for share in shares):
        low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
        carried = f"{low} %" if low == high else f"{low} to {high} %"
        output.print(f"The listed rows carry {carried} of the weight of all rows; -k {4 * explainer.k} lists more.")


def _print_explained(one: "Explained", explainer: "Explainer") -> None:
    from vicinal.report.comparables import effect, reasons
    from vicinal.report.text import fixed

    explanation, digits = one.explanation.brief(), explainer.digits

    def words(value: Any) -> str:
        if isinstance(value, list | tuple):
            return label_words(value) or "no class"
        return fixed(value, digits) if isinstance(value, int | float) and not one.chances else cell_words(value)

    before = "" if one.label is None else f" (its label is {words(one.label)})"
    predicted = words(explanation.prediction if one.said is None else one.said)
    output.print(f"{cell_words(one.query)}: {predicted}{before}", style="bold")
    if one.interval is not None:
        low, high = map(words, one.interval)
        output.print(f"{100 * explainer.coverage:g} % interval: {low} to {high}")
    if one.chances:
        listed = ", ".join(f"{name} {chance:.3f}" for name, chance in list(one.chances.items())[:_CLASSES])
        output.print(f"probabilities: {listed}{', ...' if len(one.chances) > _CLASSES else ''}")
    if explainer.usual is not None:
        far = _far(one.nearest, *explainer.usual)
        unusual = one.nearest > explainer.usual[1]
        output.print(f"Unusual row: {far}. Treat with caution." if unusual else f"{far[0].upper()}{far[1:]}.")
    moved = any(n.adjusted is not None for n in explanation.neighbors)
    trend, cells = explanation.trend, explanation.neighbors[0].row if explanation.neighbors else {}
    effects = {} if moved or trend is None else trend.columns  # adjustments name what matters
    columns = sorted(cells, key=lambda name: -abs(effects.get(name, 0.0)))[: 1 if moved else _CELLS]
    near_by = one.near_by if any(len(each) > 1 for each in one.near_by) else ()  # one column is near by itself
    scale = explanation.transform
    start = explanation.usual if trend is None else trend.value

    def part(contribution: float, weight: float) -> str:
        """What it adds; of logarithms by how much it moves the prediction away from where that starts."""
        return effect(contribution - weight * start, scale) if scale == "log" else _part(contribution, one, digits)

    by = ["adjusted by"] if moved else ["near by"] if near_by else []
    lines = [
        [str(n.id), words(n.label), *([words(n.adjusted)] if moved else [])]
        + [f"{n.weight:.3f}", part(n.contribution, n.weight)]
        + ([reasons(n.adjustments, scale)] if moved else [_near_by(near_by[place])] if near_by else [])
        + [cell_words(n.row[name]) for name in columns]
        for place, n in enumerate(explanation.neighbors)
    ]
    if trend is not None:
        value = _part(trend.value, one, digits) if trend.label is None else words(trend.label)
        of_columns = reasons(trend.columns, scale)
        said = ["trend", "", value] if moved else ["trend", of_columns]
        said += [f"{trend.weight:.3f}", "start" if scale == "log" else part(trend.contribution, trend.weight)]
        lines.append([*said, *([of_columns if moved else ""] if by else []), *[""] * len(columns)])
    elif scale == "log":
        lines.append(["all rows", words(math.exp(start)), *[""] * (1 + moved), "start", *[""] * len([*by, *columns])])
    adds = "moves it" if scale == "log" else f"adds{_SCALES.get(scale, '')}"
    adds = adds if one.said is None else f"adds to {cell_words(explanation.prediction)}"
    if explanation.other_count:
        have = _of_others(one, explainer, words)
        rest = [f"{explanation.other_count} others", *(["", have] if moved else [have])]
        rest.append(f"{explanation.other_weight:.3f}")
        lines.append(
            [*rest, part(explanation.other_contribution, explanation.other_weight), *[""] * len([*by, *columns])]
        )
    adjusted = ["adjusted"] if moved else []
    headings = ["id", "label", *adjusted, "weight", adds, *by]
    print_rows("", [*headings, *columns], lines, numbers=False, names=True, least=len(headings))


def _far(nearest: float, half: float, most: float) -> str:
    """How far away the nearest row is; not in the units of the metric, which may be of two that no person knows.

    >>> _far(1.19, 1.0, 1.16)
    'its nearest neighbor is 1.19 times as far as usual (90 % are below 1.16)'
    """
    if half == 0:
        return f"it equals {'another' if nearest == 0 else 'no'} row, and most rows equal one"
    if nearest < half / 1000:
        return "it is as good as equal to another row"
    far, below = (f"{distance / half:.2g}" for distance in (nearest, most))
    if far == below and nearest != most:
        far, below = (f"{distance / half:.3g}" for distance in (nearest, most))
    return f"its nearest neighbor is {'' if far == '1' else f'{far} times '}as far as usual (90 % are below {below})"


def _of_others(one: "Explained", explainer: "Explainer", words: Any) -> str:
    """The mean label of the rows that are not listed, or the share of the predicted class in their weight."""
    explanation = one.explanation
    if explanation.other_weight <= 0:
        return ""
    mean = explanation.other_contribution / explanation.other_weight
    if one.chances and one.said is None:
        return f"{100 * mean:.0f} % {cell_words(explanation.prediction)}" if 0 <= mean <= 1 else ""
    labels = explainer.model.bank_.labels
    inside = explanation.plain and float(labels.min()) <= mean <= float(labels.max())  # else weights below 0 cancel
    return str(words(mean)) if inside else ""


def _print_pair(pair: "PairExplanation") -> None:
    from vicinal.report.text import percent

    heading = (
        f"{cell_words(pair.left)} and {cell_words(pair.right)}: match with probability {percent(pair.probability)}"
    )
    output.print(heading, style="bold")
    weighed = [[c.column, cell_words(c.left), cell_words(c.right), c.verdict, _bits(c.weight)] for c in pair.cells]
    if pair.start == pair.start:
        (first, start), *_, (last, rest) = steps = pair.steps()
        total = sum(weight for _, weight in steps)
        ends = ((first, start), (last, rest), ("sum, log2 odds", total))
        before, *after = ([name, "", "", "", _bits(weight)] for name, weight in ends)
        weighed = [before, *weighed, *after]
    print_rows("", ["column", "left", "right", "verdict", "weight in bits"], weighed, numbers=False)
    for left, right, match, _ in pair.resembles:
        output.print(f"like the labeled pair {left} and {right} ({'match' if match else 'no match'})")


def _bits(weight: float) -> str:
    return f"{weight:+.1f}" if weight == weight else ""


def _near_by(columns: dict[str, float]) -> str:
    """The one or two columns that make a row nearest, with their shares."""
    nearer = {name: value for name, value in columns.items() if value > 0}
    ranked = sorted(nearer, key=lambda name: -nearer[name])[:2]
    return ", ".join(f"{cell_words(name)} {100 * nearer[name] / sum(nearer.values()):.0f} %" for name in ranked)


def _part(value: float, one: "Explained", digits: int) -> str:
    from vicinal.report.text import fixed

    return fixed(value, 3 if one.chances or one.explanation.transform != "none" else digits)
