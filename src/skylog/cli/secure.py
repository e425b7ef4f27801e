"""`skylog secure`: the options. `security/development_set.py` writes the files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skylog.errors import SkylogError
from skylog.security.development_set import DAYS, FILES, SERVER, write_development_set
from skylog.terminal import note


def secure(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.", show_default=False)],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="A further name or address of the broker, for its certificate; can be repeated."),
    ] = None,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", metavar="HOST:PORT", help="The address of the broker for its clients.")
    ] = "127.0.0.1:9092",
    days: Annotated[int, typer.Option("--days", min=1, help="How long the certificates are valid.")] = DAYS,
) -> None:
    """Write certificates, a user and settings for a broker with TLS and logins, for development.

    The files have secrets, and only you may read them. The key of the authority is not kept.

    [bold]skylog secure secrets[/]
    [bold]skylog serve --config secrets/server.properties[/]
    [bold]skylog topics list --config secrets/client.properties[/]
    """
    folder = directory.absolute()
    try:
        write_development_set(folder, hosts or (), bootstrap, days)
    except OSError as error:
        raise SkylogError(f"cannot write to {folder}: {error.strerror}; choose another directory") from error
    note(f"wrote {', '.join(FILES)} to {folder}")
    note(f"start a broker with: skylog serve --config {folder / SERVER}")
