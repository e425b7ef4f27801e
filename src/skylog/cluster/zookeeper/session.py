"""A `MetadataStore` on ZooKeeper: one session of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from kazoo.exceptions import ZookeeperError

from skylog.cluster.store import Entry, Operation, SessionExpiredError, Watcher
from skylog.cluster.zookeeper.access import PLAIN, ZooKeeperAccess
from skylog.cluster.zookeeper.closing import close_to_others
from skylog.cluster.zookeeper.commits import Committer
from skylog.cluster.zookeeper.connection import ZooKeeperConnection
from skylog.cluster.zookeeper.ensemble import Ensemble
from skylog.cluster.zookeeper.transaction import MAX_COMMIT_BYTES
from skylog.cluster.zookeeper.tree import EntryTree
from skylog.cluster.zookeeper.znodes import MARKERS, Znodes, create_znode, parent_of, refused
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

_BATCH_S: Final = 0.01  # the longest time that a change waits for others
_SILENCE_S: Final = 2.0  # a longer wait for the first connection is logged


async def open_zookeeper(
    connect: str, *, session_timeout_ms: int, connection_timeout_ms: int, access: ZooKeeperAccess = PLAIN
) -> ZooKeeperSession:
    """Open a session with the ensemble `HOST:PORT[,HOST:PORT…][/chroot]`, and create the chroot.

    Raises ConfigError for an invalid address, and SkylogError if no server answers in time.
    """
    ensemble = Ensemble.parse(connect)
    connection = ZooKeeperConnection(ensemble, session_timeout_ms, access)
    connection.start()
    znodes = Znodes(ensemble.chroot)
    notice = asyncio.get_running_loop().call_later(
        _SILENCE_S, logger.warning, "waiting up to %g s for ZooKeeper at %s", connection_timeout_ms / 1000, ensemble
    )
    try:
        async with asyncio.timeout(connection_timeout_ms / 1000):
            await connection.first_connected
            await create_znode(connection, znodes.znode(MARKERS))
            if access.sets_acl:
                await close_to_others(connection, znodes)
    except BaseException as error:
        await connection.close()
        if isinstance(error, TimeoutError):
            raise _no_answer(ensemble, connection_timeout_ms, connection.last_error) from None
        raise
    finally:
        notice.cancel()
    logger.info("opened a session with ZooKeeper at %s", ensemble)
    return ZooKeeperSession(connection, znodes)


def _no_answer(ensemble: Ensemble, timeout_ms: int, reason: OSError | None) -> SkylogError:
    detail = f" ({reason.strerror or reason})" if reason else ""
    hint = "check the address, and start ZooKeeper if it is not running; 'skylog zookeeper' runs one for development"
    return SkylogError(f"no ZooKeeper answers at {ensemble} within {timeout_ms / 1000:g} s{detail}: {hint}")


class ZooKeeperSession:
    """A session with ZooKeeper. `open_zookeeper` opens it; use it on that event loop only.

    Requests wait while the connection is lost. The session expires when ZooKeeper says so, and at the latest when it
    had no contact with ZooKeeper for the session timeout. It never comes back after that.
    """

    max_commit_bytes = MAX_COMMIT_BYTES
    is_shared = True

    def __init__(self, connection: ZooKeeperConnection, znodes: Znodes) -> None:
        self._connection = connection
        self._znodes = znodes
        self._committer = Committer(connection, znodes)
        self._trees: list[EntryTree] = []
        self._watchers: list[tuple[EntryTree, Watcher]] = []
        self._expiry_listeners: list[Callable[[], None]] = []
        self._commits: set[asyncio.Future[None]] = set()
        self._is_closing = False
        self._batch_timer: asyncio.TimerHandle | None = None
        connection.reconnected = self._read_again
        connection.expired = self._call_expiry_listeners
        connection.delivered = self._call_watchers

    async def load(self, prefix: str) -> dict[str, Entry]:
        self._check()
        tree = await self._load_tree(prefix, is_watched=False)
        return tree.entries

    async def commit(self, operations: Sequence[Operation]) -> None:
        self._check()
        if not operations:
            return
        finished = asyncio.get_running_loop().create_future()
        self._commits.add(finished)
        try:
            await self._committer.commit(operations)
        finally:
            self._commits.remove(finished)
            finished.set_result(None)

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        self._check()
        await create_znode(self._connection, self._znodes.znode(parent_of(prefix)))
        tree = await self._load_tree(prefix, is_watched=True)
        tree.take_changes()
        try:
            self._check()
            watcher(dict(tree.entries))
        except BaseException:
            self._trees.remove(tree)
            tree.close()
            raise
        self._watchers.append((tree, watcher))

    def on_expiry(self, listener: Callable[[], None]) -> None:
        self._expiry_listeners.append(listener)

    async def close(self) -> None:
        """Wait for the commits under way, end the session and delete its ephemeral entries.

        Without a connection the entries remain until ZooKeeper expires the session.
        """
        self._is_closing = True
        if self._commits:
            await asyncio.wait(self._commits)
        await self._connection.close()

    def _check(self) -> None:
        self._connection.check()
        if self._is_closing:
            raise SessionExpiredError("the session was closed")

    async def _load_tree(self, prefix: str, *, is_watched: bool) -> EntryTree:
        """Read the entries with the prefix. They contain all commits of other sessions until now."""
        try:
            await self._connection.retry(lambda client: client.sync_async("/"))
        except ZookeeperError as error:
            raise refused("read", error) from error
        tree = EntryTree(self._connection, self._znodes, prefix, is_watched=is_watched)
        if is_watched:
            self._trees.append(tree)
        try:
            await tree.loaded
        except BaseException:
            if is_watched:
                self._trees.remove(tree)
            tree.close()
            raise
        return tree

    # -- called by the connection, never after the session has ended

    def _read_again(self) -> None:
        for tree in self._trees:
            tree.read_again()

    def _call_watchers(self) -> None:
        """Pass on the changes, but not one by one while more are being read."""
        for tree, watcher in self._watchers:
            if not tree.is_reading:
                _call_watcher(tree, watcher)
            elif tree.has_changes and self._batch_timer is None:
                self._batch_timer = asyncio.get_running_loop().call_later(_BATCH_S, self._end_batch)

    def _end_batch(self) -> None:
        self._batch_timer = None
        if not self._connection.has_ended:
            for tree, watcher in self._watchers:
                _call_watcher(tree, watcher)

    def _call_expiry_listeners(self) -> None:
        for listener in self._expiry_listeners:
            try:
                listener()
            except Exception:
                logger.exception("an expiry listener failed")


def _call_watcher(tree: EntryTree, watcher: Watcher) -> None:
    changes = tree.take_changes()
    if changes:
        try:
            watcher(changes)
        except Exception:
            logger.exception("a watcher of the metadata failed")
