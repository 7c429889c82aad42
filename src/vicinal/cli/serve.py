"""``vicinal serve``: models over HTTP."""

from typing import Annotated

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import print_progress


@app.command(epilog="Example: VICINAL_TOKEN=secret vicinal serve houses-model --workers 2")
def serve(
    models: Annotated[
        list[str], typer.Argument(help="Model folders; requests without a name get the first.", metavar="MODEL")
    ],
    *,
    port: Annotated[int, typer.Option(help="Port to listen at; 0: a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0: all addresses of this machine.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name by which clients reach it, as that of a proxy; may be given again.", metavar="NAME"),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes.", metavar="N")] = 1,
    rate: Annotated[int, typer.Option(help="Requests per second of a client to each process; 0: unlimited.")] = 200,
    max_rows: Annotated[int, typer.Option(help="Most rows of a request.", metavar="N")] = 1000,
    max_bytes: Annotated[int, typer.Option(help="Most bytes of a request.", metavar="N")] = 32 << 20,
    index: o.IndexAgain = None,
    encoder: o.EncoderAgain = None,
    quiet: o.Quiet = False,
) -> None:
    """Serve models over HTTP: predict, explain, search; with a token in VICINAL_TOKEN also add, relabel and forget.

    Changes are on disk before they are acknowledged. After SIGTERM, running requests finish, and the exit code is 0.
    """
    from vicinal.core.checks import check_integer, local_path
    from vicinal.serve.run import serve as run_server
    from vicinal.serve.settings import ServeSettings, named_folders

    for name, value, low, high in (
        ("--port", port, 0, 65535),
        ("--workers", workers, 1, 256),
        ("--rate", rate, 0, 1 << 30),
        ("--max-rows", max_rows, 1, 1 << 30),
        ("--max-bytes", max_bytes, 1, 1 << 40),
    ):
        check_integer(name, value, low, high)
    settings = ServeSettings(
        models=named_folders([str(local_path("model", folder)) for folder in models]),
        host=host,
        port=port,
        workers=workers,
        index=index,
        encoders=o.parse_encoders(encoder),
        most_bytes=max_bytes,
        most_rows=max_rows,
        rate=rate,
        allow_hosts=allow_host or [],
    )
    run_server(settings, (lambda line: None) if quiet else print_progress)
