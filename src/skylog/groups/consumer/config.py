"""Settings of the consumer protocol, with the names of Kafka's broker keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skylog.config import setting
from skylog.errors import ConfigError

_ASSIGNORS: Final = ("uniform", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """Settings of groups that use the consumer protocol (KIP-848)."""

    assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        _ASSIGNORS,
        "Assignors that members may choose. The first is the default.",
        choices=_ASSIGNORS,
        check=lambda value: None if value else "expected at least one assignor",
    )
    heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5000,
        "How often members of the consumer protocol send heartbeats.",
        kind="int",
        minimum=1,
    )
    max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Maximum of group.consumer.heartbeat.interval.ms.",
        kind="int",
        minimum=1,
    )
    max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Maximum of group.consumer.session.timeout.ms.",
        kind="int",
        minimum=1,
    )
    max_size: int = setting(
        "group.consumer.max.size",
        0x7FFFFFFF,
        "Maximum number of members of a group that uses the consumer protocol.",
        kind="int",
        minimum=1,
    )
    migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a group may change its protocol while it has members: to the consumer protocol (upgrade), back to the "
        "classic one (downgrade), both or neither.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        "Minimum of group.consumer.heartbeat.interval.ms.",
        kind="int",
        minimum=1,
    )
    min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "Minimum of group.consumer.session.timeout.ms.",
        kind="int",
        minimum=1,
    )
    session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "Remove a member of the consumer protocol after this time without a heartbeat.",
        kind="int",
        minimum=1,
    )

    def __post_init__(self) -> None:
        for name in ("heartbeat_interval_ms", "session_timeout_ms"):
            low, value, high = (getattr(self, prefix + name) for prefix in ("min_", "", "max_"))
            if not low <= value <= high:
                key = name.replace("_", ".")
                raise ConfigError(
                    f"group.consumer.{key}={value}: must be from {low} to {high}; "
                    f"see group.consumer.min.{key} and group.consumer.max.{key}"
                )

    @property
    def allows_upgrade(self) -> bool:
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        return self.migration_policy in ("downgrade", "bidirectional")
