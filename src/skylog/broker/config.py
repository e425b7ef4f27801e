"""The broker's configuration: its own keys, those of network and groups, the defaults for topics, in one name space.

Keys are Kafka's. A topic's default is set by the key that Kafka gives it on the broker (`log.retention.ms` for
`retention.ms`); `log.retention.hours` and its like are understood as the milliseconds they stand for.

Some keys may change at run time, for this broker or for all (KIP-226). The value in force is the first that is set: for
this broker at run time, for all brokers at run time, at the start, by default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from skylog.config import Setting, UpdateMode, parse, setting, settings
from skylog.errors import ConfigError
from skylog.groups import GroupConfig
from skylog.net import NetConfig
from skylog.storage import LogConfig

_HOUR_MS: Final = 60 * 60 * 1000
_IN_OTHER_UNITS: Final = {
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.retention.minutes": ("log.retention.ms", 60 * 1000),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", _HOUR_MS),
}
_LISTENER = re.compile(r"(?:PLAINTEXT://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>\d{1,5})", re.ASCII)


def parse_listener(text: str) -> tuple[str, int] | None:
    """Host and port of `PLAINTEXT://host:port`; None for an empty text. Raises ConfigError."""
    if not text:
        return None
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"advertised.listeners={text}: expected PLAINTEXT://host:port")
    return match["host"].strip("[]"), int(match["port"])


def _check_listener(text: str) -> str | None:
    return None if not text or _LISTENER.fullmatch(text) else "expected PLAINTEXT://host:port"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The keys of the broker itself."""

    advertised_listeners: str = setting(
        "advertised.listeners",
        "",
        "The address that clients are told, as PLAINTEXT://host:port. By default the one that is listened on; with a "
        "wildcard address, the one at which the client has reached the broker.",
        check=_check_listener,
        update_mode=UpdateMode.PER_BROKER,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, "Create a topic when a client first asks for it."
    )
    broker_rack: str = setting("broker.rack", "", "The rack that clients are told, for reading nearby.")
    default_replication_factor: int = setting(
        "default.replication.factor", 1, "Replicas of a topic that is created without a number.", kind="int", minimum=1
    )
    delete_topic_enable: bool = setting("delete.topic.enable", True, "Let clients delete topics.")
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", 55 * 1024 * 1024, "The largest fetch response, one batch excepted.", kind="int", minimum=1024
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        "How often logs that want compaction are looked for.",
        minimum=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory for the keys of one compaction; a log with more keys is cleaned in several rounds.",
        minimum=1024 * 1024,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_enable: bool = setting("log.cleaner.enable", True, "Compact topics whose cleanup.policy asks for it.")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often it is written down how far the logs are on disk.",
        kind="int",
        minimum=1,
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", 1000, "How often flush.ms is looked at.", minimum=1
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", 300_000, "How often old segments are looked for.", minimum=1
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Consumers whose partitions are remembered between fetches; others send them with each.",
        kind="int",
        minimum=0,
    )
    node_id: int = setting("node.id", 1, "This broker's number in its cluster.", kind="int", minimum=0)
    num_partitions: int = setting(
        "num.partitions", 1, "Partitions of a topic that is created without a number.", kind="int", minimum=1
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        86_400_000,
        "Forget an idempotent producer that has been silent this long.",
        kind="int",
        minimum=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a broker tells of itself in Kafka's keys although nobody sets it by them."""

    broker_id: int = setting("broker.id", 1, "The same as node.id.", kind="int")
    log_dirs: str = setting("log.dirs", "", "The data directory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """All of a server's configuration.

    `given` are the keys that somebody set for the start, `cluster` those set at run time for all brokers and `own` for
    this one, as they were set.
    """

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    net: NetConfig = field(default_factory=NetConfig)
    log: LogConfig = field(default_factory=LogConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    given: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> ServerConfig:
        """Raises ConfigError for a key that is unknown, naming the nearest one, and for a value that does not fit."""
        given = dict(_in_milliseconds(_as_node_id(values)))
        return replace(cls()._overlaid(given), given=given)

    def with_dynamic(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> ServerConfig:
        """This configuration of the start with what was set at run time. Raises ConfigError."""
        return replace(self._overlaid({**cluster, **own}), cluster=dict(cluster), own=dict(own))

    def _overlaid(self, values: Mapping[str, str]) -> ServerConfig:
        parts: dict[type, dict[str, str]] = {BrokerConfig: {}, NetConfig: {}, LogConfig: {}, GroupConfig: {}}
        for key, value in values.items():
            owner, known = find_broker_key(key)
            replace(known, key=key).parse(value)  # an error names the broker's key, not the topic's
            parts[owner][known.key] = value
        return replace(
            self,
            broker=parse(BrokerConfig, parts[BrokerConfig], self.broker),
            net=parse(NetConfig, parts[NetConfig], self.net),
            log=parse(LogConfig, parts[LogConfig], self.log),
            groups=parse(GroupConfig, parts[GroupConfig], self.groups),
        )

    def effective(self) -> dict[str, tuple[Setting, Any]]:
        """Every broker key with its setting and the value in force, sorted."""
        return {key: (known, self.value_of(key)) for key, (_, known) in sorted(_owners().items())}

    def value_of(self, key: str) -> Any:
        """The value in force of a broker's key. Raises ConfigError."""
        owner, known = find_broker_key(key)
        parts = {BrokerConfig: self.broker, NetConfig: self.net, LogConfig: self.log, GroupConfig: self.groups}
        return getattr(parts[owner], known.field)


def broker_keys() -> list[str]:
    """Every key that a broker's configuration may have."""
    return sorted([*_owners(), *_IN_OTHER_UNITS, *settings(NodeFacts)])


def find_broker_key(key: str) -> tuple[type, Setting]:
    """The part of the configuration that has a broker's key, and its setting. Raises ConfigError."""
    try:
        return _owners()[key]
    except KeyError:
        raise _unknown(key) from None


def check_dynamic(key: str, *, for_one_broker: bool) -> None:
    """Raise ConfigError unless a key may be set at run time, for one broker or for all of them."""
    if key in _IN_OTHER_UNITS or key in settings(NodeFacts):
        mode = UpdateMode.READ_ONLY
    else:
        mode = find_broker_key(key)[1].update_mode
    if mode is UpdateMode.READ_ONLY:
        raise ConfigError(f"'{key}' is read when the broker starts and cannot be changed at run time")
    if mode is UpdateMode.PER_BROKER and not for_one_broker:
        raise ConfigError(f"'{key}' can be set for one broker, not for all of them: name the broker's id")


@cache
def _owners() -> dict[str, tuple[type, Setting]]:
    owners: dict[str, tuple[type, Setting]] = {}
    for owner in (BrokerConfig, NetConfig, GroupConfig):
        owners.update({key: (owner, known) for key, known in settings(owner).items()})
    for known in settings(LogConfig).values():
        if known.broker_key:
            owners[known.broker_key] = (LogConfig, known)
    return owners


def _as_node_id(values: Mapping[str, str]) -> dict[str, str]:
    """`values` with `broker.id` under its newer name. Raises ConfigError where both are given and differ."""
    renamed = dict(values)
    broker_id = renamed.pop("broker.id", None)
    if broker_id is not None and renamed.setdefault("node.id", broker_id) != broker_id:
        raise ConfigError(f"broker.id={broker_id} and node.id={renamed['node.id']} are the same thing and must agree")
    return renamed


def _in_milliseconds(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """`values` with hours and minutes turned into milliseconds; where several are given, the finest unit wins."""
    coarse = {}
    for key, (target, unit_ms) in _IN_OTHER_UNITS.items():
        if key in values and target not in values:
            try:
                number = int(values[key])
            except ValueError:
                raise ConfigError(f"{key}={values[key]}: expected a whole number") from None
            coarse[target] = str(number * unit_ms if number >= 0 else number)
    return [*coarse.items(), *((key, value) for key, value in values.items() if key not in _IN_OTHER_UNITS)]


def _unknown(key: str) -> ConfigError:
    if key == "log.dirs":
        return ConfigError("'log.dirs' is the data directory, which --data-dir sets")
    close = difflib.get_close_matches(key, broker_keys(), n=1, cutoff=0.5)
    topic_key = settings(LogConfig).get(key)
    if topic_key is not None and topic_key.broker_key:
        return ConfigError(f"'{key}' is a topic's key; its default for all topics is '{topic_key.broker_key}'")
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return ConfigError(f"unknown configuration key '{key}'{hint}")
