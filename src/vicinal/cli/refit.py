"""``vicinal refit``: fit a model again on all rows, and replace it unless that is worse."""

from dataclasses import asdict
from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_scores
from vicinal.cli.progress import shown_progress


@app.command(epilog="Example: vicinal refit houses-model  |  vicinal refit houses-model sold-until-june.csv")
@o.with_options(o.MODEL, o.RUN)
def refit(
    model: Annotated[str, o.argument("Model folder of `vicinal fit`.", "MODEL")],
    data: Annotated[
        o.Name, o.argument("Labelled table; default: the rows of the bank, with all changes.", "[DATA]")
    ] = None,
    *,
    even_if_worse: Annotated[bool, o.described("Replace the old model in any case.", "--even-if-worse")] = False,
    **options: Any,
) -> None:
    """Fit a model's settings again on all rows, and replace the model unless the new one is worse.

    Both are measured on the same rows, which neither was trained on. Corrections and their history are kept.
    """
    from vicinal.report.text import score
    from vicinal.workflows import refit_model

    with shown_progress(**{name: options[name] for name in o.RUN}) as shown:
        outcome = refit_model(
            o.folder_of(model),
            o.table_of(data, options),
            even_if_worse=even_if_worse,
            **o.opened(options) | {"log": shown.log},
        )
    if options["as_json"]:
        print_json(asdict(outcome))
        return
    for sentence in (outcome.basis, *outcome.notes):
        output.print(sentence)
    print_scores("Both models on these rows", outcome.scores)
    name = {"mse": "MSE", "log_loss": "Log loss"}[outcome.error]
    side = "above" if outcome.change > 0 else "below"
    change = f"{score(abs(outcome.change))} {side} that of the old one (standard error {score(outcome.doubt)})"
    output.print(f"{name} of the new model: {change}.")
    said = f"{model} is the new model, with {outcome.rows.get('bank', 0):,} rows in its bank"
    output.print(said if outcome.replaced else f"{model} stays as it was; --even-if-worse replaces it")
