"""Translates a commit to a ZooKeeper transaction (multi), and the errors of one back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from skylog.cluster.store import EntryChange, Operation, VersionCheck, VersionConflictError
from skylog.cluster.zookeeper.znodes import Znodes, encode, refused
from skylog.errors import ErrorCode, KafkaError, SkylogError

MAX_COMMIT_BYTES: Final = 0xFFFFF
"""The largest request that a ZooKeeper server accepts (jute.maxbuffer). It closes the connection at a larger one."""
_STEP_OVERHEAD_BYTES: Final = 64  # versions, flags, lengths and the access control list of a step

Add = Callable[[Any], None]
"""Adds a step to kazoo's TransactionRequest."""


class TransactionStep(NamedTuple):
    path: str
    add: Add
    size: int
    is_create: bool = False


def to_steps(operations: Iterable[Operation], znodes: Znodes) -> list[TransactionStep]:
    """Raises KafkaError if the steps are too large for one request."""
    steps = [step for operation in operations for step in _steps_of(operation, znodes)]
    size = sum(step.size for step in steps)
    if size > MAX_COMMIT_BYTES:
        largest = max(steps, key=lambda step: step.size)
        reason = f"the change has {size} bytes, of which {largest.size} for {largest.path}"
        reason += f"; ZooKeeper takes at most {MAX_COMMIT_BYTES} bytes at once"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return steps


def put_step(path: str, znode: str, data: bytes, expected_version: int, *, ephemeral: bool) -> TransactionStep:
    """Create a znode, or change one that has the expected version."""
    size = len(znode.encode()) + len(data) + _STEP_OVERHEAD_BYTES
    if expected_version == 0:
        return TransactionStep(path, lambda add: add.create(znode, data, ephemeral=ephemeral), size, is_create=True)
    return TransactionStep(path, lambda add: add.set_data(znode, data, expected_version - 1), size)


def _steps_of(operation: Operation, znodes: Znodes) -> Iterator[TransactionStep]:
    path, expected = operation.path, operation.expected_version
    znode = znodes.znode(path)
    size = len(znode.encode()) + _STEP_OVERHEAD_BYTES
    if isinstance(operation, EntryChange) and operation.value is not None:
        yield put_step(path, znode, encode(operation.value), expected, ephemeral=operation.ephemeral)
    elif expected == 0:
        # ZooKeeper cannot check that a znode does not exist, but it can create one only then.
        yield TransactionStep(path, lambda add: add.create(znode), size, is_create=True)
        yield TransactionStep(path, lambda add: add.delete(znode), size)
    elif isinstance(operation, VersionCheck):
        yield TransactionStep(path, lambda add: add.check(znode, expected - 1), size)
    else:
        yield TransactionStep(path, lambda add: add.delete(znode, expected - 1), size)


def send(client: Any, steps: Iterable[TransactionStep]) -> Any:
    """Send the steps as one transaction, and return kazoo's IAsyncResult."""
    transaction = client.transaction()
    for step in steps:
        step.add(transaction)
    return transaction.commit_async()


class Failure(NamedTuple):
    """The step that made a transaction fail, and the reason."""

    step: TransactionStep
    error: Exception

    @property
    def is_parent_missing(self) -> bool:
        return self.step.is_create and isinstance(self.error, NoNodeError)

    def to_error(self) -> SkylogError:
        if isinstance(self.error, NodeExistsError | BadVersionError | NoNodeError):
            return VersionConflictError(self.step.path)
        return refused(f"change {self.step.path}", self.error)


def failure_of(steps: Sequence[TransactionStep], results: Sequence[Any]) -> Failure | None:
    """Find what made a transaction fail. The steps before it are rolled back, those after it are not tried."""
    for step, result in zip(steps, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            return Failure(step, result)
    return None
