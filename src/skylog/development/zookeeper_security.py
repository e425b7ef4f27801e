"""How the ZooKeeper of a secured development cluster is secured: from the files of `skylog secure`."""

from __future__ import annotations

from pathlib import Path

from skylog.cluster.zookeeper.server_security import ServerSecurity
from skylog.config import read_properties
from skylog.errors import SkylogError
from skylog.security.development_set import CLUSTER
from skylog.security.jaas import parse_jaas


def security_of(folder: Path) -> ServerSecurity:
    """Return TLS and the login that `cluster.properties` in this folder describes. Raises SkylogError."""
    try:
        settings = read_properties((folder / CLUSTER).read_text())
        login = parse_jaas(settings["zookeeper.sasl.jaas.config"])
        identity, authority = settings["ssl.keystore.location"], settings["ssl.truststore.location"]
        return ServerSecurity(Path(identity), Path(authority), login["username"], login["password"])
    except (OSError, KeyError) as error:
        raise SkylogError(f"{folder} has no {CLUSTER} of skylog secure: {error}") from error
