"""The files of `skylog secure`: certificates, users and settings for a secured broker and its clients, for development.

Importing it is cheap: `cryptography` is needed only by `write_development_set`.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from skylog.errors import SkylogError
from skylog.security.own_client import jaas_of

LISTENER: Final = "SASL_SSL"
MECHANISM: Final = "SCRAM-SHA-512"
ADMIN: Final = "admin"
SERVER: Final = "server.properties"
CLUSTER: Final = "cluster.properties"
"""The settings of a broker with a ZooKeeper that is secured with the same files."""
CLIENT: Final = "client.properties"
FILES: Final = ("ca.pem", "broker.pem", "client.pem", SERVER, CLUSTER, CLIENT, "client.librdkafka.properties")
_ZOOKEEPER_LOGIN: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
DAYS: Final = 365
_DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def is_development_set(folder: Path) -> bool:
    return (folder / SERVER).exists()


def write_development_set(
    folder: Path, hosts: Sequence[str] = (), bootstrap: str = _DEFAULT_BOOTSTRAP, days: int = DAYS
) -> None:
    """Write the files, for a broker at `bootstrap` that is also called `hosts`. Only their owner may read them.

    Raises SkylogError if one exists, or if `cryptography` is missing.
    """
    try:
        from skylog.security.certificates import Authority
    except ImportError as error:
        raise SkylogError(f"certificates require pip install 'skylog[secure]': {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    existing = [name for name in FILES if (folder / name).exists()]
    if existing:
        raise SkylogError(f"{folder / existing[0]} exists: choose another directory, or remove it")
    authority = Authority("skylog development", days)
    names = dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts])
    broker, client = authority.issue("broker", list(names)), authority.issue(ADMIN)
    password = new_password()
    write_secret(folder / "ca.pem", authority.certificate)
    write_secret(folder / "broker.pem", broker.key + broker.certificate)
    write_secret(folder / "client.pem", client.key + client.certificate)
    write_secret(folder / "client.librdkafka.properties", _librdkafka(folder, bootstrap, password))
    write_secret(folder / CLIENT, client_properties(folder, bootstrap, ADMIN, password))
    server = _server(folder, bootstrap, password)
    write_secret(folder / CLUSTER, server + _zookeeper(folder, new_password()))
    write_secret(folder / SERVER, server)


def new_password() -> str:
    return secrets.token_urlsafe(24)


def write_secret(path: Path, text: str) -> None:
    """Write a new file that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def client_properties(folder: Path, bootstrap: str | None, user: str, password: str) -> str:
    """Return the settings of a client, with the names of Kafka's Java clients."""
    found = {} if bootstrap is None else {"bootstrap.servers": bootstrap}
    return _lines(found | client_settings(folder, user, password))


def client_settings(folder: Path, user: str, password: str) -> dict[str, str]:
    """Return how a user connects to a broker with these files."""
    return {
        "security.protocol": LISTENER,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": jaas_of(MECHANISM, user, password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _server(folder: Path, bootstrap: str, password: str) -> str:
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


def _zookeeper(folder: Path, password: str) -> str:
    return f"""\
# How brokers connect to the ZooKeeper of: skylog zookeeper --secrets {folder}
zookeeper.ssl.client.enable=true
zookeeper.ssl.truststore.type=PEM
zookeeper.ssl.truststore.location={folder / "ca.pem"}
zookeeper.sasl.jaas.config={_ZOOKEEPER_LOGIN} required username="broker" password="{password}";
zookeeper.set.acl=true
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
