"""``vicinal demo``: a fit on a small real table."""

import textwrap
from pathlib import Path
from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_scores
from vicinal.cli.progress import shown_progress


@app.command(epilog="Example: vicinal demo --out demo-model")
@o.with_options(o.RUN)
def demo(
    *,
    out: Annotated[Path, o.described("Model folder to write.")] = Path("demo-model"),
    seed: o.Seed = 0,
    **options: Any,
) -> None:
    """Predict how far cars go on a gallon, beside other models, say from which cars, and find a wrong label.

    The data are 398 cars of 1970 to 1982, which come with vicinal; nothing is downloaded.
    """
    from vicinal.workflows.demo import run_demo

    with shown_progress(**options) as shown:
        result = run_demo(out, seed=seed, log=shown.log)
    if options["as_json"]:
        print_json(result.as_json())
        return
    print_scores(f"Miles per gallon of {result.test_rows} cars, five-fold cross-validation", result.scores)
    output.print(result.verdict)
    output.print("Test cars, their miles per gallon as predicted, and the cars behind it:")
    for line in result.lines:
        head, _, reasons = line.partition(": ")
        said, _, rows = reasons.partition(": ")
        for text, indent in [(f"{head}: {said}", 2), *((row, 4) for row in rows.split("; "))]:
            output.print(textwrap.fill(text, output.width, initial_indent=" " * indent, subsequent_indent=" " * 6))
    output.print("A wrong label, found and corrected:")
    for line in result.correction.sentences():
        output.print(f"  {line}")
    output.print(f"report  {out / 'report.html'}")
