"""``vicinal export``: a model in a form that other programs run."""

from dataclasses import asdict
from typing import Annotated

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import print_json, print_rows


@app.command(epilog="Example: vicinal export houses-model --onnx houses.onnx")
def export(
    model: Annotated[str, typer.Argument(help="Model folder of any kind.", metavar="MODEL")],
    *,
    onnx: Annotated[str, typer.Option(help="File to write, .onnx: what turns rows into vectors.", metavar="FILE")],
    index: o.IndexAgain = None,
    encoder: o.EncoderAgain = None,
    as_json: o.AsJson = False,
) -> None:
    """Write what turns rows into vectors, for programs without torch.

    The vectors are those of `vicinal embed`. What the graph reads is listed: tokens and n-grams are made outside of it.
    """
    from vicinal.core import local_path
    from vicinal.workflows import export_onnx

    path = local_path("--onnx", onnx, written=True)
    inputs = export_onnx(local_path("model", model), path, index=index, encoders=o.parse_encoders(encoder))
    if as_json:
        print_json([asdict(one) for one in inputs])
        return
    rows = [[one.name, one.dtype, ", ".join(map(str, one.shape)), one.meaning] for one in inputs]
    print_rows(f"{onnx}: vectors, float32, of", ["input", "type", "shape", "what it holds"], rows, numbers=False)
