"""The entries below a prefix, read from ZooKeeper, and kept up to date by watches.

ZooKeeper's watches fire once. A read sets a watch, and its event causes the next read. All requests of a connection
are answered in order, and each answer is at least as new as the one before. From that follows:

* A change after a read fires the watch that the read has set, so the latest state is never missed.
* An event may arrive before the answer of the read that has set the watch, because kazoo delivers them in two threads.
  So an event during a read causes another read after it.
* A znode is read only if it is listed by its parent. A new one fires the parent's watch. Only znodes that changed are
  read again, except after a lost connection, which ends all watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import EventType

from skylog.cluster.store import Entry, SessionExpiredError
from skylog.cluster.zookeeper.connection import ZooKeeperConnection
from skylog.cluster.zookeeper.znodes import RESERVED, Znodes, decode, parent_of, refused
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)


class _What(Enum):
    DATA = "data"
    CHILDREN = "children"


class _Read(NamedTuple):
    what: _What
    path: str


class EntryTree:
    """The znodes from the parent of `prefix` on, except paths without the prefix. Lives on the event loop.

    `entries` is the latest state. `loaded` is done when everything was read for the first time.
    """

    def __init__(self, connection: ZooKeeperConnection, znodes: Znodes, prefix: str, *, is_watched: bool) -> None:
        self._connection = connection
        self._znodes = znodes
        self._prefix = prefix
        self._top = parent_of(prefix)
        self._watch: Callable[[Any], None] | None = self._on_event if is_watched else None
        self._is_closed = False
        self._children: dict[str, set[str]] = {}  # paths of the children of each directory
        self._changed_at: dict[str, int] = {}  # the transaction that changed each entry last
        self._changes: dict[str, Entry | None] = {}
        self._reads: dict[_Read, bool] = {}  # reads under way, and whether to repeat them
        self._unread: set[_Read] = set()
        self.entries: dict[str, Entry] = {}
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_directory(self._top)

    @property
    def is_reading(self) -> bool:
        return bool(self._reads)

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def take_changes(self) -> dict[str, Entry | None]:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    def read_again(self) -> None:
        """Read everything, because all watches are gone."""
        self._read(_Read(_What.CHILDREN, self._top))
        for path in [child for children in self._children.values() for child in children]:
            self._read(_Read(_What.CHILDREN if path in self._children else _What.DATA, path))

    def close(self) -> None:
        self._is_closed = True
        self.loaded.cancel()

    # -- events and reads

    def _on_event(self, event: Any) -> None:
        """Called in a thread of kazoo."""
        if event.type != EventType.NONE:  # that is a lost connection, which `read_again` follows
            self._connection.mailbox.post(partial(self._handle, event.type, self._znodes.path(event.path)))

    def _handle(self, event_type: str, path: str) -> None:
        if path in self._children:
            self._read(_Read(_What.CHILDREN, path))
        elif self._is_listed(path) and event_type != EventType.CHILD:
            self._read(_Read(_What.DATA, path))

    def _read(self, read: _Read) -> None:
        if self._is_closed:
            return
        if read in self._reads:
            self._reads[read] = True
            return
        self._reads[read] = False
        znode, watch = self._znodes.znode(read.path), self._watch
        if read.what is _What.DATA:
            self._connection.send(lambda client: client.get_async(znode, watch), partial(self._reply, read))
        else:
            self._connection.send(lambda client: client.get_children_async(znode, watch), partial(self._reply, read))

    def _reply(self, read: _Read, result: Any, error: Exception | None) -> None:
        must_repeat = self._reads.pop(read)
        if self._is_closed:
            return
        if isinstance(error, SessionExpiredError):
            self._fail(error)
        elif isinstance(error, ConnectionLoss):
            self._read(read)  # kazoo keeps it until there is a connection
        else:
            self._apply(read, result, error)
            if must_repeat:
                self._read(read)
            if not self._unread and not self.loaded.done():
                self.loaded.set_result(None)

    def _fail(self, error: SkylogError) -> None:
        if not self.loaded.done():
            self.loaded.set_exception(error)

    # -- answers

    def _apply(self, read: _Read, result: Any, error: Exception | None) -> None:
        self._unread.discard(read)
        if isinstance(error, NoNodeError) and not (read.path == self._top and self._watch):
            self._remove(read.path)
        elif error is not None:
            self._fail(refused(f"read {read.path or '/'}", error))
            if self._watch is not None:  # the session cannot follow the state any more
                self._connection.expire(f"{read.path or '/'} cannot be read ({type(error).__name__})")
        elif read.what is _What.DATA:
            data, stat = result
            self._apply_data(read.path, data, stat)
        else:
            self._apply_children(read.path, {f"{read.path}/{name}" for name in result})

    def _apply_data(self, path: str, data: bytes, stat: Any) -> None:
        if not self._is_listed(path) or self._changed_at.get(path) == stat.mzxid:
            return
        if not data and path not in self.entries:
            self._open_directory(path)
            return
        try:
            value = decode(path, data)
        except SkylogError as error:
            if self.loaded.done():
                logger.error("%s", error)  # the entry stays as it was
            self._fail(error)
            return
        self.entries[path] = self._changes[path] = Entry(value, stat.version + 1)
        self._changed_at[path] = stat.mzxid

    def _apply_children(self, path: str, children: set[str]) -> None:
        known = self._children.get(path)
        if known is None:
            return  # deleted meanwhile
        wanted = {child for child in children if child.startswith(self._prefix) and child not in RESERVED}
        self._children[path] = wanted
        for child in wanted - known:
            self._begin(_Read(_What.DATA, child))
        for child in known - wanted:
            self._remove(child)

    def _open_directory(self, path: str) -> None:
        if path not in self._children:
            self._children[path] = set()
            self._begin(_Read(_What.CHILDREN, path))

    def _begin(self, read: _Read) -> None:
        self._unread.add(read)
        self._read(read)

    def _remove(self, path: str) -> None:
        for child in self._children.pop(path, set()):
            self._remove(child)
        self._children.get(parent_of(path), set()).discard(path)
        self._unread -= {_Read(what, path) for what in _What}
        self._changed_at.pop(path, None)
        if self.entries.pop(path, None) is not None:
            self._changes[path] = None

    def _is_listed(self, path: str) -> bool:
        return path in self._children.get(parent_of(path), ())
