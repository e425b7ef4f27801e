"""Settings of transactions, with the names of Kafka's broker keys."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of the transaction coordinator and its topic."""

    abort_timed_out_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often to abort transactions that have timed out.",
        kind="int",
        minimum=1,
    )
    id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        604_800_000,
        "Forget a transactional id that has not been used for this long.",
        kind="int",
        minimum=1,
    )
    max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        "Maximum transaction timeout that a producer may request.",
        kind="int",
        minimum=1,
    )
    partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        "Ask the coordinator whether a transaction is open before a batch begins it in a partition (KIP-890).",
    )
    remove_expired_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often to remove expired transactional ids.",
        kind="int",
        minimum=1,
    )
    state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        "The min.insync.replicas of __transaction_state, at most its replication factor.",
        kind="int",
        minimum=1,
    )
    state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        "Number of partitions of __transaction_state.",
        kind="int",
        minimum=1,
    )
    state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        "Replication factor of __transaction_state in a cluster. Without a cluster it is 1.",
        kind="int",
        minimum=1,
    )
    state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "The segment.bytes of __transaction_state.",
        kind="int",
        minimum=1,
    )
