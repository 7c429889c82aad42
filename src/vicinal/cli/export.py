"""``vicinal export``: a model in a form that other programs run."""

from dataclasses import asdict
from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows


@app.command(
    epilog="Examples: vicinal export houses-model --onnx houses.onnx  |  vicinal export houses-model --mlflow houses"
)
@o.with_options(o.AGAIN, {"as_json": o.RUN["as_json"]})
def export(
    model: Annotated[str, o.argument("Model folder of any kind.", "MODEL")],
    *,
    onnx: Annotated[o.Name, o.described("File to write, .onnx: encoder and projector.", metavar="FILE")] = None,
    mlflow: Annotated[
        o.Name, o.described("Folder to write: the whole model, for MLflow's pyfunc.", metavar="FOLDER")
    ] = None,
    **options: Any,
) -> None:
    """Write the encoder and projector for programs without torch (--onnx), or a whole model for MLflow (--mlflow).

    The vectors are those of `vicinal embed`. The inputs of the graph are listed; other programs must make tokens and
    n-grams themselves.
    """
    from vicinal.core.checks import local_path
    from vicinal.workflows import export_onnx
    from vicinal.workflows.mlflow_model import save_mlflow

    if (onnx is None) == (mlflow is None):
        raise ValueError(f"export: expected one of --onnx and --mlflow, got {'none' if onnx is None else 'both'}")
    if mlflow is not None:
        save_mlflow(o.folder_of(model), local_path("--mlflow", mlflow, written=True))
        output.print(f"{mlflow}: a model for mlflow.pyfunc.load_model")
        return
    path = local_path("--onnx", str(onnx), written=True)
    inputs = export_onnx(o.folder_of(model), path, **o.again(options))
    if options["as_json"]:
        print_json([asdict(one) for one in inputs])
        return
    rows = [[one.name, one.dtype, ", ".join(map(str, one.shape)), one.meaning] for one in inputs]
    print_rows(f"{onnx}: vectors, float32, of", ["input", "type", "shape", "what it holds"], rows, numbers=False)
