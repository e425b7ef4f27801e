"""The partitions that a group assigns to one member, and the offsets where it starts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, Literal

from confluent_kafka import OFFSET_BEGINNING, KafkaException
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.handles import keep_handle
from skylog.client.offset_tracker import OffsetTracker
from skylog.errors import SkylogError
from skylog.model import TopicPartition

Start = Literal["earliest", "latest"] | Callable[[TopicPartition], int | None]

logger = logging.getLogger(__name__)

LEAVE_S: Final = 30.0
_ATTEMPTS_S: Final = 30.0
_WAIT_S: Final = 0.2


class Membership:
    """The partitions of a member. Runs on the consumer's thread; librdkafka calls back from within a fill.

    The start offset is determined when a partition is assigned. After that, an offset that the log does not hold means
    lost messages. `before_revoke` is called while the revoked partitions still belong to this member.
    """

    def __init__(
        self, tracker: OffsetTracker, start: Start, before_revoke: Callable[[], None], *, is_cooperative: bool
    ) -> None:
        self._tracker = tracker
        self._client = tracker.client
        self._inbox = tracker.inbox
        self._start = start
        self._before_revoke = before_revoke
        self._is_cooperative = is_cooperative
        self._unplaced: list[LibraryPartition] = []  # assigned, but the start offset is not known yet
        self._failure: Exception | None = None

    def join(self, topics: list[str]) -> None:
        self._client.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def leave(self) -> None:
        """Leave the group, which revokes the partitions. Returns after LEAVE_S in any case.

        librdkafka's `close` may never return while a rebalance is pending. So it runs in a thread, which is abandoned
        then: the group removes this member when its session times out.
        """
        failures: list[Exception] = []
        leaving = threading.Thread(target=self._close, args=(failures,), name="skylog-leave", daemon=True)
        leaving.start()
        try:
            leaving.join(LEAVE_S)
        finally:
            if leaving.is_alive():
                keep_handle(self._client)
        if leaving.is_alive():
            logger.warning(
                "group '%s' was not left within %g s; it removes this member when its session times out",
                self._tracker.group,
                LEAVE_S,
            )
        for failure in failures:
            raise failure

    def _close(self, failures: list[Exception]) -> None:
        try:
            self._client.close()
        except Exception as error:
            failures.append(error)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned to this member."""
        return sorted(_key(each) for each in self._client.assignment())

    def wait_for_assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions; joins the group first if necessary."""
        deadline = monotonic() + _ATTEMPTS_S
        while not self._client.assignment():
            if monotonic() > deadline:
                raise SkylogError(
                    f"no partition was assigned to this member of group '{self._tracker.group}'; "
                    "does the group have more members than partitions?"
                )
            self._inbox.fill(_WAIT_S)
        return self.assignment

    def move(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue at the given offsets. Raises SkylogError for partitions that are not assigned to this member."""
        owned = self.wait_for_assignment()
        for key, offset in offsets.items():
            if key not in owned:
                mine = ", ".join(map(str, owned))
                raise SkylogError(f"{key} is not assigned to this member of group '{self._tracker.group}', only {mine}")
            self._tracker.moved(key, offset)
        self._place(offsets)

    def before_fill(self) -> None:
        """Recover from an interrupted fill or a failed assignment."""
        if self._inbox.is_interrupted:
            self._recover()
        if self._unplaced:
            unplaced, self._unplaced = self._unplaced, []
            self._begin(unplaced)

    def after_fill(self) -> None:
        """Raise the exception of a callback, if any."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _recover(self) -> None:
        """Read again the messages that an interrupted fill had taken."""
        offsets = self._tracker.next_offsets(with_current=True)
        self._inbox.ready.clear()
        self._inbox.is_interrupted = False
        owned = self.assignment
        offsets = {key: offset for key, offset in offsets.items() if key in owned}
        for key, offset in offsets.items():
            self._tracker.placed(key, offset)
        self._place(offsets)

    def _place(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make librdkafka continue at these offsets, in partitions that this member owns."""
        self._inbox.move(offsets)
        targets = [LibraryPartition(*key, offset) for key, offset in offsets.items()]
        # Not `seek`, which fails in a partition that was just assigned or has an error.
        if self._is_cooperative:
            self._client.incremental_unassign(targets)
            self._client.incremental_assign(targets)
        else:
            others = [each for each in self._client.position(self._client.assignment()) if _key(each) not in offsets]
            begun = [each for each in others if each.offset >= 0]
            for each in begun:
                self._tracker.placed(_key(each), each.offset)
            fresh = [each for each in others if each.offset < 0]
            self._client.assign([*targets, *begun, *(self._starts(self._committed(fresh)) if fresh else ())])

    # -- starting

    def _begin(self, partitions: list[LibraryPartition]) -> None:
        """Start reading newly assigned partitions. If that fails, it is retried before the next fill."""
        try:
            committed = self._committed(partitions)
            starts = self._starts(committed)
        except BaseException:
            self._unplaced += partitions
            raise
        self._tracker.assigned(committed, starts)
        self._assign(starts)

    def _assign(self, starts: list[LibraryPartition]) -> None:
        if self._is_cooperative:
            self._client.incremental_assign(starts)
        else:
            self._client.assign(starts)

    def _starts(self, committed: list[LibraryPartition]) -> list[LibraryPartition]:
        return [LibraryPartition(*_key(each), self._start_offset(each)) for each in committed]

    def _start_offset(self, committed: LibraryPartition) -> int:
        if callable(self._start):
            wanted = self._start(_key(committed))
            if wanted is not None:
                return wanted
        if committed.offset >= 0:
            return int(committed.offset)
        return self._end_offset(_key(committed)) if self._start == "latest" else int(OFFSET_BEGINNING)

    def _end_offset(self, key: TopicPartition) -> int:
        """Resolve the end to a number. It is committed, so messages that arrive while no member reads are kept."""
        try:
            return int(self._client.get_watermark_offsets(LibraryPartition(*key), timeout=_ATTEMPTS_S)[1])
        except KafkaException as error:
            raise self._tracker.connection.error(error, f"cannot read the end offset of {key}") from error

    def _committed(self, partitions: list[LibraryPartition]) -> list[LibraryPartition]:
        deadline = monotonic() + _ATTEMPTS_S
        while True:
            try:
                return list(self._client.committed(partitions, timeout=_ATTEMPTS_S / 3))
            except KafkaException as error:
                if monotonic() > deadline:
                    doing = f"cannot read the offsets of group '{self._tracker.group}'"
                    raise self._tracker.connection.error(error, doing) from error

    # -- called by librdkafka

    def _on_assign(self, _client: LibraryConsumer, partitions: list[LibraryPartition]) -> None:
        """Keep an exception for after the fill: raised in the callback, librdkafka would choose the start itself."""
        try:
            self._begin(partitions)
        except Exception as error:
            self._failure = error
            self._assign([])

    def _on_revoke(self, _client: LibraryConsumer, partitions: list[LibraryPartition]) -> None:
        self._before_revoke()
        self._on_lost(_client, partitions)

    def _on_lost(self, _client: LibraryConsumer, partitions: list[LibraryPartition]) -> None:
        keys = [_key(each) for each in partitions]
        self._unplaced = [each for each in self._unplaced if _key(each) not in keys]
        self._tracker.revoked(keys)
        self._inbox.forget(keys)


def _key(partition: LibraryPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
