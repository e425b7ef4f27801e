"""How entries are stored in ZooKeeper.

The entry at path /topics/a is the znode CHROOT/topics/a. Its data is the value as JSON, its version is one less than
the version of the entry. The parents of entries are znodes without data. An entry has no entries below it.

CHROOT/_commits has the markers of `commits.py`. Without a chroot, /zookeeper belongs to ZooKeeper.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Final

import orjson
from kazoo.exceptions import NoAuthError, NodeExistsError, SessionClosedRequireSaslError, ZookeeperError

from skylog.cluster.store import Value
from skylog.cluster.zookeeper.connection import ZooKeeperConnection
from skylog.errors import SkylogError

MARKERS: Final = "/_commits"
RESERVED: Final = frozenset({MARKERS, "/zookeeper"})


class Znodes:
    """Converts between paths of entries and those of znodes. The empty path is the parent of all."""

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot

    def znode(self, path: str) -> str:
        return self._chroot + path or "/"

    def path(self, znode: str) -> str:
        return znode.removeprefix(self._chroot).removesuffix("/")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def encode(value: Value) -> bytes:
    return orjson.dumps(value)


def decode(path: str, data: bytes) -> Value:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise SkylogError(f"the data of {path} in ZooKeeper is damaged: {error}") from error
    if not isinstance(value, dict):
        raise SkylogError(f"the data of {path} in ZooKeeper is not a JSON object")
    return value


async def create_znode(connection: ZooKeeperConnection, znode: str) -> None:
    """Create a znode without data and its parents, unless they exist."""
    names = [name for name in znode.split("/") if name]
    for end in range(1, len(names) + 1):
        path = "/" + "/".join(names[:end])
        try:
            await connection.retry(methodcaller("create_async", path))
        except NodeExistsError:
            continue
        except ZookeeperError as error:
            raise refused(f"create {path}", error) from error


def refused(what: str, error: Exception) -> SkylogError:
    hint = ""
    if isinstance(error, SessionClosedRequireSaslError):
        hint = ": it serves only clients that log in; set zookeeper.sasl.jaas.config"
    elif isinstance(error, NoAuthError):
        hint = ": another user has created it; log in as the user of the other brokers (zookeeper.sasl.jaas.config)"
    return SkylogError(f"ZooKeeper refused to {what}: {type(error).__name__}{hint}")
