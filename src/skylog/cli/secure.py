"""`skylog secure`: writes a ready set of certificates and settings for development."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Annotated, Final

import typer

from skylog.errors import SkylogError
from skylog.terminal import note

LISTENER: Final = "SASL_SSL"
MECHANISM: Final = "SCRAM-SHA-512"
ADMIN: Final = "admin"
FILES: Final = (
    "ca.pem",
    "broker.pem",
    "client.pem",
    "server.properties",
    "client.properties",
    "client.librdkafka.properties",
)


def secure(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.", show_default=False)],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="A further name or address of the broker, for its certificate; can be repeated."),
    ] = None,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", metavar="HOST:PORT", help="The address of the broker for its clients.")
    ] = "127.0.0.1:9092",
    days: Annotated[int, typer.Option("--days", min=1, help="How long the certificates are valid.")] = 365,
) -> None:
    """Write certificates, a user and settings for a broker with TLS and logins, for development.

    The files have secrets, and only you may read them. The key of the authority is not kept.

    [bold]skylog secure secrets[/]
    [bold]skylog serve --config secrets/server.properties[/]
    [bold]skylog topics list --config secrets/client.properties[/]
    """
    try:
        from skylog.security.certificates import Authority
    except ImportError as error:
        raise SkylogError(f"skylog secure requires pip install 'skylog[secure]': {error}") from error
    folder = directory.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    existing = [name for name in FILES if (folder / name).exists()]
    if existing:
        raise SkylogError(f"{folder / existing[0]} exists: choose another directory, or remove it")
    authority = Authority("skylog development", days)
    names = dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *(hosts or ())])
    broker, client = authority.issue("broker", list(names)), authority.issue(ADMIN)
    password = secrets.token_urlsafe(24)
    _write(folder / "ca.pem", authority.certificate)
    _write(folder / "broker.pem", broker.key + broker.certificate)
    _write(folder / "client.pem", client.key + client.certificate)
    _write(folder / "server.properties", _server(folder, bootstrap, password))
    _write(folder / "client.properties", _client(folder, bootstrap, password))
    _write(folder / "client.librdkafka.properties", _librdkafka(folder, bootstrap, password))
    note(f"wrote {', '.join(FILES)} to {folder}")
    note(f"start a broker with: skylog serve --config {folder / 'server.properties'}")


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _server(folder: Path, bootstrap: str, password: str) -> str:
    from skylog.security.own_client import jaas_of

    prefix = f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}"
    return f"""\
listeners={LISTENER}://{bootstrap}
ssl.keystore.type=PEM
ssl.keystore.location={folder / "broker.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={folder / "ca.pem"}
ssl.client.auth=requested
sasl.enabled.mechanisms={MECHANISM}
# Other users need rights: skylog acls add USER OPERATION --topic TOPIC
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMIN}
# The broker adds this user at its first start.
{prefix}.sasl.jaas.config={jaas_of(MECHANISM, ADMIN, password)}
"""


def _client(folder: Path, bootstrap: str, password: str) -> str:
    from skylog.security.own_client import jaas_of

    return f"""\
bootstrap.servers={bootstrap}
security.protocol={LISTENER}
sasl.mechanism={MECHANISM}
sasl.jaas.config={jaas_of(MECHANISM, ADMIN, password)}
ssl.truststore.type=PEM
ssl.truststore.location={folder / "ca.pem"}
"""


def _librdkafka(folder: Path, bootstrap: str, password: str) -> str:
    return f"""\
bootstrap.servers={bootstrap}
security.protocol={LISTENER.lower()}
sasl.mechanisms={MECHANISM}
sasl.username={ADMIN}
sasl.password={password}
ssl.ca.location={folder / "ca.pem"}
"""
