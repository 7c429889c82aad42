"""``vicinal demo``: a fit on real data from a small package."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import out as output
from vicinal.cli.output import print_json, print_scores
from vicinal.cli.progress import shown_progress


@app.command(epilog="Example: vicinal demo --out demo-model")
def demo(
    *,
    out: Annotated[Path, typer.Option(help="Model folder to write.")] = Path("demo-model"),
    seed: o.Seed = 0,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Predict the sentiment of words from similar words, and compare neighbors with a dense head.

    The data are human valence ratings (-4 to 4) of about 7,500 words and emoticons from the lexicon in the package
    vaderSentiment; nothing is downloaded.
    """
    from vicinal.workflows.demo import run_demo

    with shown_progress(quiet=quiet, verbose=verbose, as_json=as_json) as shown:
        result = run_demo(out, seed=seed, log=shown.log)
    if as_json:
        print_json(result.as_json())
        return
    print_scores(f"Valence of {result.test_rows} held-out words (MSE x 1000 on labels scaled to [0, 1])", result.scores)
    output.print("Held-out words, predicted from their neighbors:")
    for line in result.lines:
        output.print(f"  {line}", markup=False)
    output.print(f"report  {out / 'report.html'}", markup=False)
