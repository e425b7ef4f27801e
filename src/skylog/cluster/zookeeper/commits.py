"""Applies commits exactly once, although the connection may be lost before the answer arrives.

After a lost connection it is unknown whether a transaction was applied, will be applied (the server may still have it
in a queue), or never will be. Versions and values cannot tell: another session may have put the same value, or a later
one. So each transaction also puts a *marker*: an ephemeral znode of this session, at the marker's expected version.
After a loss the committer puts the same marker at the same version, with other data: the *fence*. ZooKeeper applies
either the transaction or the fence, whichever comes first, and always rejects the other one. The marker's data shows
which one was applied. Only this session writes the marker, for one commit at a time.

* The data of the transaction: the commit was applied.
* The data of the fence: the transaction was not applied, and cannot be any more. It is sent again.
* The session ends before the outcome is known: `UnknownOutcomeError`.

A marker costs one more step in each transaction, but no round trip. A session has as many as it had concurrent commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NoReturn
from uuid import uuid4

from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError, ZookeeperError

from skylog.cluster.store import Operation, SessionExpiredError, UnknownOutcomeError
from skylog.cluster.zookeeper.connection import ZooKeeperConnection
from skylog.cluster.zookeeper.transaction import Failure, TransactionStep, failure_of, put_step, send, to_steps
from skylog.cluster.zookeeper.znodes import MARKERS, Znodes, create_znode, parent_of, refused

_APPLIED: Final = b"applied"
_FENCED: Final = b"fenced"


@dataclass(slots=True)
class Marker:
    """Its version is that of an entry: 0 before it is created."""

    path: str
    znode: str
    version: int = 0

    def put(self, data: bytes) -> TransactionStep:
        return put_step(self.path, self.znode, data, self.version, ephemeral=True)


class Committer:
    """The commits of one session."""

    def __init__(self, connection: ZooKeeperConnection, znodes: Znodes) -> None:
        self._connection = connection
        self._znodes = znodes
        self._name = uuid4().hex
        self._numbers = count()
        self._idle_markers: list[Marker] = []

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Raises VersionConflictError, UnknownOutcomeError, or SkylogError if ZooKeeper does not take the change."""
        steps = to_steps(operations, self._znodes)
        marker = self._idle_markers.pop() if self._idle_markers else self._new_marker()
        try:
            failure = await self._apply(steps, marker)
        except SessionExpiredError as error:
            raise UnknownOutcomeError(f"{error}; a change under way may have been made") from None
        except ZookeeperError as error:
            raise refused("apply a change", error) from error
        self._idle_markers.append(marker)
        if failure is not None:
            raise failure.to_error()

    async def _apply(self, steps: Sequence[TransactionStep], marker: Marker) -> Failure | None:
        """Apply the steps exactly once, or return why they cannot be applied."""
        while True:
            marked = [marker.put(_APPLIED), *steps]
            try:
                failure = await self._try(marked)
            except ConnectionLoss:
                if await self._was_applied(marker):
                    return None
                continue
            if failure is None:
                marker.version += 1
                return None
            if failure.step is marked[0]:
                self._lose_marker(marker)
            return failure

    async def _was_applied(self, marker: Marker) -> bool:
        """Make sure that the transaction was applied, or never will be."""
        while True:
            try:
                failure = await self._try([marker.put(_FENCED)])
            except ConnectionLoss:
                continue  # if this fence is applied, the next one is rejected and finds its data
            if failure is None:
                data = _FENCED
            elif isinstance(failure.error, BadVersionError | NodeExistsError):
                data = await self._read(marker)
            else:
                self._lose_marker(marker)
            marker.version += 1
            return data == _APPLIED

    async def _read(self, marker: Marker) -> bytes:
        try:
            data, _ = await self._connection.retry(lambda client: client.get_async(marker.znode))
        except NoNodeError:
            self._lose_marker(marker)
        return bytes(data)

    async def _try(self, steps: Sequence[TransactionStep]) -> Failure | None:
        """Send a transaction, and create the parents that it needs. Raises ConnectionLoss."""
        while True:
            results = await self._connection.call(lambda client: send(client, steps))
            failure = failure_of(steps, results)
            if failure is None or not failure.is_parent_missing:
                return failure
            await self._create_parents(steps)

    def _lose_marker(self, marker: Marker) -> NoReturn:
        """Without its markers, a session cannot find out what was applied."""
        self._connection.expire(f"{marker.path} was changed by someone else")
        raise SessionExpiredError(f"{marker.path} was changed by someone else")

    async def _create_parents(self, steps: Sequence[TransactionStep]) -> None:
        for parent in {parent_of(step.path) for step in steps if step.is_create}:
            await create_znode(self._connection, self._znodes.znode(parent))

    def _new_marker(self) -> Marker:
        path = f"{MARKERS}/{self._name}-{next(self._numbers)}"
        return Marker(path, self._znodes.znode(path))
