"""``vicinal serve``: models over HTTP."""

from dataclasses import fields
from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.settings import ServerSettings

_NAMES = {"allow_hosts": "--allow-host", "most_rows": "--max-rows", "most_bytes": "--max-bytes"}
"""Options whose name is not that of their setting."""

SERVER = o.of_settings(ServerSettings, None, *(one.name for one in fields(ServerSettings)), options=_NAMES)


@app.command(epilog="Example: VICINAL_TOKEN=secret vicinal serve houses-model --workers 2")
@o.with_options(SERVER, o.AGAIN, {"quiet": o.RUN["quiet"]})
def serve(
    models: Annotated[list[str], o.argument("Model folders; requests without a name get the first.", "MODEL")],
    **options: Any,
) -> None:
    """Serve models over HTTP: predict, explain, search, recommend; with a token in VICINAL_TOKEN add, relabel, forget.

    Changes are on disk before they are acknowledged. After SIGTERM, running requests finish, and the exit code is 0.
    """
    from vicinal.core.checks import check_integer, local_path
    from vicinal.serve.run import serve as run_server
    from vicinal.serve.settings import ServeSettings, named_folders

    for one in fields(ServerSettings):
        if (limits := one.metadata["limits"]) is not None:
            check_integer(_NAMES.get(one.name, f"--{one.name}"), options[one.name], limits.low, limits.high)
    folders = named_folders([str(local_path("model", folder)) for folder in models])
    listening = {name: options[name] for name in SERVER if options[name] is not None}
    settings = ServeSettings(models=folders, **o.again(options), **listening)
    run_server(settings, o.log_of(options))
