"""Metrics of transactions, from the state in memory of the coordinator and of the partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from skylog.broker.time_slice import TimeSlice
from skylog.metric import Metric, Sample
from skylog.transactions import TransactionState

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

LATE_MS: Final = 300_000
"""How long after its timeout a transaction should have its markers at the latest (KIP-664)."""


async def transaction_metrics(broker: Broker) -> list[Metric]:
    """Return the metrics of the transactional ids that this broker coordinates, without those still being loaded."""
    states: Counter[TransactionState] = Counter()
    oldest_ms = now_ms = broker.clock.now_ms()
    time_slice = TimeSlice()
    for shard in broker.transactions.shards():
        for transaction in shard.all():
            await time_slice.yield_if_over()
            entry = transaction.entry
            if entry is None:
                continue
            states[entry.state] += 1
            if not entry.state.is_idle:
                oldest_ms = min(oldest_ms, entry.start_ms)
    return [
        Metric(
            "skylog_transactional_ids",
            "gauge",
            "Transactional ids that this broker coordinates, by the state of their last transaction.",
            [Sample(states[state], {"state": state.value}) for state in TransactionState],
        ),
        Metric(
            "skylog_oldest_transaction_seconds",
            "gauge",
            "How long the oldest transaction that this broker coordinates has been running.",
            [Sample((now_ms - oldest_ms) / 1000, {})],
        ),
        Metric(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "gauge",
            "Led partitions with an open transaction that should have timed out more than 5 minutes ago.",
            [Sample(await _count_late(broker, time_slice), {})],
        ),
    ]


async def _count_late(broker: Broker, time_slice: TimeSlice) -> int:
    latest_ms = broker.clock.now_ms() - broker.config.transactions.max_timeout_ms - LATE_MS
    count = 0
    for partition in broker.replicas.all():
        await time_slice.yield_if_over()
        if partition.is_leader:
            count += partition.log.producers.has_late_transaction(latest_ms)
    return count
