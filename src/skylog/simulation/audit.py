"""A run with the audit: brokers count what they store, and the books of all tiers must balance in the end.

The stored tier is the real one, beside each broker. It lives through the same faults. What producers and readers count
follows from the history, so this does not depend on how their clients count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from skylog.audit.books import Books
from skylog.audit.report import AUDIT_TOPIC, Count, Report, Tier
from skylog.audit.stored_tier import StoredTier
from skylog.broker import Broker
from skylog.model import TopicPartition
from skylog.records import InvalidBatchError, Record, check_batch, iterate_batches, read_records
from skylog.simulation.checks import Stored
from skylog.simulation.history import History, Value
from skylog.simulation.scenario import Scenario
from skylog.simulation.workloads import HEAL_S, TOPIC, Workload
from skylog.simulation.world import World

WINDOW_MS: Final = 2000
INTERVAL_S: Final = 1.0
READER: Final = "reader-0"


class Stamped(NamedTuple):
    """A value with the timestamp of its record."""

    value: Value
    timestamp_ms: int


class Audit(Workload):
    """Numbers that brokers count, over crashes and changes of the leader."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        world.new_companion = _new_tier

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return {TOPIC: self.scenario.topic_configs, AUDIT_TOPIC: self.scenario.topic_configs}

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        await self.until(lambda: not self._unbalanced(), HEAL_S, 3 * INTERVAL_S)
        return self._unbalanced()

    def _unbalanced(self) -> list[str]:
        """Return the violations. After damage there are none: brokers count what headers say, without a checksum."""
        if self.world.has_damage:
            return []
        reports = [Report.decode(record.value or b"") for record in _records(self.world, AUDIT_TOPIC, 0)]
        stamped = {
            partition: {
                record.offset: Stamped(Value.decode(record.value), record.timestamp)
                for record in _records(self.world, TOPIC, partition)
            }
            for partition in range(self.scenario.partitions)
        }
        return unbalanced(reports, self.history, stamped)


def _new_tier(broker: Broker) -> StoredTier:
    return StoredTier(broker, delay_s=INTERVAL_S / 5, interval_s=INTERVAL_S, window_ms=WINDOW_MS)


def _records(world: World, topic: str, partition: int) -> list[Record]:
    """Return what the leader of a partition has in its files. Damaged batches are left out, until they are repaired."""
    image = world.topics()[topic].partitions[partition]
    folder = world.machines[image.leader].disk.path / str(TopicPartition(topic, partition))
    found: list[Record] = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size_bytes]
            try:
                check_batch(batch)
            except InvalidBatchError:
                continue
            found += read_records(batch)
    return found


def unbalanced(reports: Iterable[Report], history: History, stored: Mapping[int, Mapping[int, Stamped]]) -> list[str]:
    """Windows in which produced, stored and consumed messages differ.

    `reports` are those of the brokers. A message that is stored without an acknowledgement is uncertain to its
    producer, which was killed.
    """
    books = Books(WINDOW_MS)
    for report in [*reports, _produced(history, stored), *_consumed(history, stored)]:
        books.add(report)
    balances = books.balance(1 << 62, 0, topics={TOPIC}, groups={READER}, required=(Tier.STORED, Tier.CONSUMED))
    return [
        f"books: {each.topic} from {each.window_start_ms}: {each}; stored {each.stored}, produced {each.produced}"
        for each in balances
        if not each.is_balanced
    ]


def _produced(history: History, stored: Mapping[int, Mapping[int, Stamped]]) -> Report:
    acknowledged = {message.value for message in history.acknowledged}
    certain, uncertain = Counter[int](), Counter[int]()
    for log in stored.values():
        for value, timestamp_ms in log.values():
            (certain if value in acknowledged else uncertain)[timestamp_ms // WINDOW_MS] += 1
    counts = [
        Count(window * WINDOW_MS, (window + 1) * WINDOW_MS, certain[window], 0, uncertain[window])
        for window in sorted(certain | uncertain)
    ]
    return Report(Tier.PRODUCED, "producers", TOPIC, counts, 0)


def _consumed(history: History, stored: Mapping[int, Mapping[int, Stamped]]) -> Iterable[Report]:
    for assignment in history.assignments:
        if assignment.member == READER and assignment.messages:
            log = stored[assignment.partition]
            stamps = [log[message.offset].timestamp_ms for message in assignment.messages if message.offset in log]
            windows = Counter(each // WINDOW_MS for each in stamps)
            counts = [
                Count(window * WINDOW_MS, (window + 1) * WINDOW_MS, count, 0)
                for window, count in sorted(windows.items())
            ]
            end_offset = assignment.messages[-1].offset + 1
            yield Report(Tier.CONSUMED, READER, TOPIC, counts, 0, assignment.partition, 0, end_offset)
