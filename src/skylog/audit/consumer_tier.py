"""The consumer's tier: counts the messages that a group has processed, by partition and window.

Processed means committed. So the commit carries the counts: its metadata holds the report of the messages since the
previous commit, and earlier reports that are not known to be published yet. Offset and counts are stored atomically,
and the next owner of the partition finds the reports that its predecessor may not have published. A report that both
publish has one id, and counts once.

A report that may have been published keeps its id and its counts. Reports that were never sent may be merged if there
are many: the new report replaces them in every later commit, and they are never published.

After a seek, a member forgets the counts that belong to no commit. A commit that timed out just before may still be
stored: its counts are then missing, unless the member dies before its next commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from skylog.audit.commit_metadata import decode_metadata, encode_metadata, pending_reports
from skylog.audit.counts import Publish, WindowCounts, add_up, check_window
from skylog.audit.report import AUDIT_TOPIC, DEFAULT_WINDOW_MS, Count, Report, Tier
from skylog.clock import Clock, SystemClock
from skylog.model import TopicPartition

DEFAULT_INTERVAL_S: Final = 5.0
MAX_UNDER_WAY: Final = 4
MAX_UNPUBLISHED: Final = 8
MAX_REMEMBERED_COMMITS: Final = 64

__all__ = ["ConsumedTier", "ConsumerAudit", "pending_reports"]


class CountedMessage(Protocol):
    """The methods of a consumed message that the tier uses. Its length is that of its value."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...


class ConsumerAudit:
    """Counts the messages that groups have consumed.

        consumer = Consumer("clicks", group="billing", audit=ConsumerAudit())

    window_ms: the length of a time window; must be the same in all tiers. interval_s: how often a report that could not
    be published is retried.
    """

    def __init__(
        self,
        *,
        window_ms: int = DEFAULT_WINDOW_MS,
        interval_s: float = DEFAULT_INTERVAL_S,
        clock: Clock | None = None,
    ) -> None:
        self.window_ms = check_window(window_ms)
        self.interval_s = interval_s
        self.clock = clock or SystemClock()

    def open_consumer(self, group: str, publish: Publish) -> ConsumedTier:
        return ConsumedTier(self, group, publish)


class _Entry:
    """A report and its state. `parts` are the reports that it replaces."""

    __slots__ = ("is_committed", "is_replaced", "is_stored", "is_under_way", "may_be_published", "parts", "report")

    def __init__(self, report: Report, *, is_committed: bool = False, parts: Sequence[_Entry] = ()) -> None:
        self.report = report
        self.parts = parts
        self.is_committed = is_committed
        self.may_be_published = self.is_under_way = self.is_stored = self.is_replaced = False


class _Partition:
    """The state of one partition: counts since the last commit, and unpublished reports, oldest first.

    `start_offset` is where the next report starts: the end of the last one, or None for the first consumed message.
    """

    __slots__ = ("commits", "counts", "entries", "name", "start_offset")

    def __init__(self, name: TopicPartition, window_ms: int) -> None:
        self.name = name
        self.counts = WindowCounts(window_ms)
        self.start_offset: int | None = None
        self.entries: list[_Entry] = []
        self.commits: dict[int, list[_Entry]] = {}  # by the offset of the commit that carries them

    def forget_uncommitted(self, window_ms: int) -> None:
        self.counts = WindowCounts(window_ms)
        self.start_offset = None
        kept = []
        for entry in self.entries:
            if entry.is_committed:
                kept.append(entry)
            else:
                for part in entry.parts:
                    part.is_replaced = False
                    if part.is_committed:
                        kept.append(part)
        self.entries = kept


class ConsumedTier:
    """The counts of one group member. `skylog.client.tier.ConsumerTier` documents when each method is called."""

    def __init__(self, audit: ConsumerAudit, group: str, publish: Publish) -> None:
        self._audit = audit
        self._group = group
        self._publish = publish
        self._window_ms = audit.window_ms
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._settled: deque[tuple[_Partition, _Entry, bool]] = deque()  # filled from other threads
        self._due = audit.clock.monotonic() + audit.interval_s

    # -- counting

    def consumed(self, messages: Sequence[CountedMessage]) -> None:
        window_ms = self._window_ms
        topic: str | None = None
        number: int | None = -1
        start_ms = end_ms = count = size_bytes = 0
        partition: _Partition | None = None
        row = [0, 0]
        for message in messages:
            if message.partition() != number or message.topic() != topic:
                topic, number = message.topic(), message.partition()
                partition = self._began(topic, number, message.offset())
                start_ms = end_ms = 0
            time_ms = message.timestamp()[1]
            if not start_ms <= time_ms < end_ms:
                row[0] += count
                row[1] += size_bytes
                count = size_bytes = 0
                window = time_ms // window_ms
                start_ms = window * window_ms
                end_ms = start_ms + window_ms
                assert partition is not None
                row = partition.counts.row(window, window)
            count += 1
            key = message.key()
            size_bytes += len(message) if key is None else len(message) + len(key)
        row[0] += count
        row[1] += size_bytes

    def _began(self, topic: str | None, number: int | None, offset: int | None) -> _Partition:
        assert topic is not None
        assert number is not None
        assert offset is not None
        partition = self._partition(topic, number)
        if partition.start_offset is None or offset < partition.start_offset:
            partition.start_offset = offset
        return partition

    def _partition(self, topic: str, number: int) -> _Partition:
        name = TopicPartition(topic, number)
        found = self._partitions.get(name)
        if found is None:
            found = self._partitions[name] = _Partition(name, self._window_ms)
        return found

    # -- commits

    def metadata(self, topic: str, partition: int, end_offset: int) -> str:
        self._note_settled()
        one = self._partition(topic, partition)
        if len(one.counts):
            start_offset = end_offset if one.start_offset is None else min(one.start_offset, end_offset)
            self._add(one, start_offset, end_offset, one.counts.counts())
            one.counts = WindowCounts(self._window_ms)
            one.start_offset = end_offset
        one.commits.pop(end_offset, None)
        one.commits[end_offset] = list(one.entries)
        if len(one.commits) > MAX_REMEMBERED_COMMITS:
            del one.commits[next(iter(one.commits))]
        return encode_metadata(self._group, one.name, end_offset, [entry.report for entry in one.entries])

    def committed(self, topic: str, partition: int, end_offset: int) -> None:
        self._note_settled()
        one = self._partitions.get(TopicPartition(topic, partition))
        if one is None:
            return
        for entry in one.commits.pop(end_offset, ()):
            entry.is_committed = True
            if not (entry.is_replaced or entry.is_stored or entry in one.entries):
                one.entries.append(entry)  # the application sought before the commit was confirmed
        self._publish_some(one)

    def assigned(self, topic: str, partition: int, metadata: str | None) -> None:
        name = TopicPartition(topic, partition)
        one = self._partitions[name] = _Partition(name, self._window_ms)
        one.start_offset, found = decode_metadata(metadata)
        one.entries = [_Entry(report, is_committed=True) for report in found]
        self._publish_all(one)  # the previous owner may have published them too

    def revoked(self, topic: str, partition: int) -> None:
        one = self._partitions.pop(TopicPartition(topic, partition), None)
        if one is not None:
            self._publish_all(one)

    def moved(self, topic: str, partition: int) -> None:
        self._partition(topic, partition).forget_uncommitted(self._window_ms)

    def _add(self, one: _Partition, start_offset: int, end_offset: int, counts: Sequence[Count]) -> None:
        parts = [entry for entry in one.entries if not entry.may_be_published]
        if len(parts) < MAX_UNPUBLISHED:
            one.entries.append(_Entry(self._report(one, start_offset, end_offset, counts)))
            return
        reports = [entry.report for entry in parts]
        start_offset = min([start_offset, *(report.start_offset or 0 for report in reports)])
        end_offset = max([end_offset, *(report.end_offset or 0 for report in reports)])
        counts = add_up([*(row for report in reports for row in report.counts), *counts])
        for entry in parts:
            entry.is_replaced = True
            one.entries.remove(entry)
        one.entries.append(_Entry(self._report(one, start_offset, end_offset, counts), parts=parts))

    def _report(self, one: _Partition, start_offset: int, end_offset: int, counts: Sequence[Count]) -> Report:
        return Report(
            tier=Tier.CONSUMED,
            source=self._group,
            topic=one.name.topic,
            partition=one.name.partition,
            start_offset=start_offset,
            end_offset=end_offset,
            counts=counts,
            reported_at_ms=self._audit.clock.now_ms(),
        )

    # -- publishing

    def tick(self) -> None:
        self._note_settled()
        now = self._audit.clock.monotonic()
        if now >= self._due:
            self._due = now + self._audit.interval_s
            for one in self._partitions.values():
                for entry in list(one.entries):
                    if entry.may_be_published and not entry.is_under_way:
                        self._send(one, entry)
                self._publish_some(one)

    def close(self) -> None:
        self._note_settled()
        for one in self._partitions.values():
            self._publish_all(one)

    def _publish_some(self, one: _Partition) -> None:
        """Publish committed reports, a few at a time: a report that may have been published cannot be merged."""
        room = MAX_UNDER_WAY - sum(entry.may_be_published for entry in one.entries)
        waiting = [entry for entry in one.entries if entry.is_committed and not entry.may_be_published]
        for entry in waiting[: max(room, 0)]:
            self._send(one, entry)

    def _publish_all(self, one: _Partition) -> None:
        for entry in list(one.entries):
            if entry.is_committed and not entry.is_under_way:
                self._send(one, entry)

    def _send(self, one: _Partition, entry: _Entry) -> None:
        entry.may_be_published = entry.is_under_way = True
        self._publish(AUDIT_TOPIC, entry.report.encode(), partial(self._done, one, entry))

    def _done(self, one: _Partition, entry: _Entry, is_stored: bool) -> None:
        self._settled.append((one, entry, is_stored))

    def _note_settled(self) -> None:
        while self._settled:
            one, entry, is_stored = self._settled.popleft()
            entry.is_under_way = False
            entry.is_stored = is_stored
            if is_stored and entry in one.entries:
                one.entries.remove(entry)
                if self._partitions.get(one.name) is one:
                    self._publish_some(one)
