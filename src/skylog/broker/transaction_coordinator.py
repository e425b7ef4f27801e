"""The coordinator of transactions: it finds the shard of a transactional id, and drives timeouts and expiry.

Transactional ids are stored in the internal topic `__transaction_state`. This broker coordinates those of the
partitions that it leads, each partition in a shard of its own (see `transaction_shard` and `state_topic`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skylog.broker.leader_client import LeaderClient
from skylog.broker.leadership import Leadership
from skylog.broker.periodic_jobs import PeriodicJobs
from skylog.broker.state_topic import StateTopic
from skylog.broker.time_slice import TimeSlice
from skylog.broker.transaction_markers import TransactionMarkers
from skylog.broker.transaction_shard import TransactionShard
from skylog.broker.transaction_verifier import TransactionVerifier
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TRANSACTION_STATE_TOPIC
from skylog.transactions import TransactionConfig

if TYPE_CHECKING:
    from skylog.broker.broker import Broker


class TransactionCoordinator:
    """The transactions of this broker. Use it on the event loop only. Background failures are counted in `failures`.

    `markers` and `verifier` also serve the partitions that this broker leads. Each has connections of its own to other
    brokers: one that waits for replicas must not delay the other.
    """

    def __init__(self, broker: Broker, config: TransactionConfig) -> None:
        self._broker = broker
        self.config = config
        self._topic = StateTopic(TRANSACTION_STATE_TOPIC, broker, self._new_shard)
        self._clients = [LeaderClient(broker), LeaderClient(broker)]
        self.markers = TransactionMarkers(broker, self._clients[0])
        self.verifier = TransactionVerifier(broker, self._clients[1])
        self._jobs = PeriodicJobs()
        self._failures = 0

    def _new_shard(self, leadership: Leadership) -> TransactionShard:
        return TransactionShard(self._broker, self.config, leadership, self._failed)

    @property
    def failures(self) -> int:
        return self._failures + self._jobs.failures + self._topic.failures

    def _failed(self) -> None:
        self._failures += 1

    def start(self) -> None:
        self._topic.start()
        self._jobs.start(self.config.abort_timed_out_interval_ms / 1000, self.abort_timed_out)
        self._jobs.start(self.config.remove_expired_interval_ms / 1000, self.remove_expired)

    async def stop(self) -> None:
        await self._jobs.stop()
        for shard in self._topic.all_shards():
            await shard.stop()
        await self._topic.stop()
        await self.markers.stop()
        await self.verifier.stop()
        for client in self._clients:
            client.close()

    # -- finding transactions

    async def ensure_topic(self) -> None:
        """Create the topic of transactions unless it exists. Raises KafkaError."""
        await self._topic.ensure_exists()

    def find(self, transactional_id: str) -> int:
        """Return the id of the broker that coordinates a transactional id, NO_LEADER if none does."""
        return self._topic.coordinator_of(transactional_id)

    def shard(self, transactional_id: str) -> TransactionShard:
        """Return the shard of a transactional id. Raises KafkaError unless this broker serves it now."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return self._topic.shard(transactional_id)

    def shards(self) -> list[TransactionShard]:
        """Return the shards that this broker serves."""
        return self._topic.served()

    @property
    def is_loading(self) -> bool:
        """Whether this broker coordinates transactional ids that it does not serve yet."""
        return self._topic.is_loading

    # -- background

    async def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for too long."""
        time_slice = TimeSlice()
        for shard in self.shards():
            await shard.abort_timed_out(time_slice)

    async def remove_expired(self) -> None:
        """Remove the transactional ids that have not been used for long."""
        time_slice = TimeSlice()
        for shard in self.shards():
            await shard.remove_expired(time_slice)
