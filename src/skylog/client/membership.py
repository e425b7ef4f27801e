"""What a group has given to one of its members, and where that reads on in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, Literal

from confluent_kafka import OFFSET_BEGINNING, KafkaException
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.progress import Progress
from skylog.errors import SkylogError
from skylog.model import TopicPartition

Start = Literal["earliest", "latest"] | Callable[[TopicPartition], int | None]

_ATTEMPTS_S: Final = 30.0
_WAIT_S: Final = 0.2


class Membership:
    """The partitions of a member. Lives on the thread of its consumer; librdkafka calls back from within a fill.

    Where to begin is found out when a partition is assigned, so that from then on an offset that the log does not have
    means lost messages. `before_revoke` is called while what is taken away is still this member's.
    """

    def __init__(
        self, progress: Progress, start: Start, before_revoke: Callable[[], None], *, is_cooperative: bool
    ) -> None:
        self._progress = progress
        self._client = progress.client
        self._inbox = progress.inbox
        self._start = start
        self._before_revoke = before_revoke
        self._is_cooperative = is_cooperative
        self._unplaced: list[LibraryPartition] = []  # this member's, but where to begin is not known yet
        self._failure: Exception | None = None

    def join(self, topics: list[str]) -> None:
        self._client.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are this member's now."""
        return sorted(_key(each) for each in self._client.assignment())

    def wait_for_assignment(self) -> list[TopicPartition]:
        """The partitions of this member, which may have to join first."""
        deadline = monotonic() + _ATTEMPTS_S
        while not self._client.assignment():
            if monotonic() > deadline:
                raise SkylogError(
                    f"no partition was assigned to this member of group '{self._progress.group}'; has it too many?"
                )
            self._inbox.fill(_WAIT_S)
        return self.assignment

    def move(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The application wants to read on from here. Raises SkylogError for partitions that are not this member's."""
        owned = self.wait_for_assignment()
        for key, offset in offsets.items():
            if key not in owned:
                mine = ", ".join(map(str, owned))
                raise SkylogError(f"{key} is not this member's; group '{self._progress.group}' gave it {mine}")
            self._progress.moved(key, offset)
        self._place(offsets)

    def before_fill(self) -> None:
        """Make good what was interrupted or failed before."""
        if self._inbox.is_torn:
            self._mend()
        if self._unplaced:
            unplaced, self._unplaced = self._unplaced, []
            self._begin(unplaced)

    def after_fill(self) -> None:
        """Raise what has failed in a callback."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _mend(self) -> None:
        """Read again what a fill had taken when it was broken off."""
        offsets = self._progress.next_offsets(with_hand=True)
        self._inbox.ready.clear()
        self._inbox.is_torn = False
        owned = self.assignment
        offsets = {key: offset for key, offset in offsets.items() if key in owned}
        for key, offset in offsets.items():
            self._progress.placed(key, offset)
        self._place(offsets)

    def _place(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let librdkafka read on from here in these partitions, which this member owns."""
        self._inbox.move(offsets)
        targets = [LibraryPartition(*key, offset) for key, offset in offsets.items()]
        # Not `seek`, which is refused in a partition that has just been assigned, or that has failed.
        if self._is_cooperative:
            self._client.incremental_unassign(targets)
            self._client.incremental_assign(targets)
        else:
            others = [each for each in self._client.position(self._client.assignment()) if _key(each) not in offsets]
            begun = [each for each in others if each.offset >= 0]
            for each in begun:
                self._progress.placed(_key(each), each.offset)
            fresh = [each for each in others if each.offset < 0]
            self._client.assign([*targets, *begun, *(self._starts(self._committed(fresh)) if fresh else ())])

    # -- beginning

    def _begin(self, partitions: list[LibraryPartition]) -> None:
        """Read partitions that this member has been given. Where that fails, it is tried again before the next fill."""
        try:
            committed = self._committed(partitions)
            starts = self._starts(committed)
        except BaseException:
            self._unplaced += partitions
            raise
        self._progress.assigned(committed)
        for each in starts:
            if each.offset >= 0:
                self._progress.placed(_key(each), each.offset)
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
        """A number rather than "the end": it is committed, and what comes while nobody reads is not skipped."""
        try:
            return int(self._client.get_watermark_offsets(LibraryPartition(*key), timeout=_ATTEMPTS_S)[1])
        except KafkaException as error:
            raise self._progress.connection.error(error, f"asking for the end of {key}") from error

    def _committed(self, partitions: list[LibraryPartition]) -> list[LibraryPartition]:
        deadline = monotonic() + _ATTEMPTS_S
        while True:
            try:
                return list(self._client.committed(partitions, timeout=_ATTEMPTS_S / 3))
            except KafkaException as error:
                if monotonic() > deadline:
                    doing = f"asking for the offsets of group '{self._progress.group}'"
                    raise self._progress.connection.error(error, doing) from error

    # -- called by librdkafka

    def _on_assign(self, _client: LibraryConsumer, partitions: list[LibraryPartition]) -> None:
        """What fails here is raised after the fill: out of a callback, librdkafka would begin where it likes."""
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
        self._progress.revoked(keys)
        self._inbox.forget(keys)


def _key(partition: LibraryPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
