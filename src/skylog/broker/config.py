"""The broker's configuration: its own keys, those of network, groups and transactions, and the topic defaults,
in one namespace.

Keys have Kafka's names. The broker key of a topic key sets its default for all topics (`log.retention.ms` for
`retention.ms`). `log.retention.hours` and similar keys are converted to milliseconds.

Some keys can change at run time, for this broker or for all (KIP-226). The effective value is the first of: this
broker's at run time, all brokers' at run time, the one given at startup, the default.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from skylog.config import HIDDEN, Setting, UpdateMode, parse, setting, settings
from skylog.errors import ConfigError
from skylog.groups import ConsumerGroupConfig, GroupConfig
from skylog.net import NetConfig
from skylog.net.listener import OF_A_LISTENER
from skylog.quotas import QuotaConfig
from skylog.replication.token_bucket import UNLIMITED
from skylog.security.config import LISTENER_PREFIX, SecurityConfig, key_of_listener
from skylog.security.listeners import check_listeners, parse_listeners
from skylog.security.zookeeper_config import ZooKeeperConfig
from skylog.storage import LogConfig
from skylog.transactions import TransactionConfig

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_HOUR_MS: Final = 60 * 60 * 1000
_IN_OTHER_UNITS: Final = {
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.retention.minutes": ("log.retention.ms", 60 * 1000),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", _HOUR_MS),
}


def _check_advertised(text: str) -> str | None:
    found = check_listeners(text)
    if found is None and not all(address.host for address in parse_listeners(text)):
        return "expected NAME://host:port"
    return found


def _check_selector(text: str) -> str | None:
    return None if text in ("", RACK_AWARE_SELECTOR) else f"expected {RACK_AWARE_SELECTOR}, or nothing for the leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of the broker itself."""

    advertised_listeners: str = setting(
        "advertised.listeners",
        "",
        "The addresses that the broker returns to clients, as NAME://host:port,…. By default those it listens on; if "
        "that is a wildcard, the address the client connected to.",
        check=_check_advertised,
        update_mode=UpdateMode.PER_BROKER,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, "Create a topic when a client first requests its metadata."
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        "Move leaders back to the preferred replicas, as the controller of a cluster.",
    )
    broker_rack: str = setting("broker.rack", "", "The rack of this broker, as returned to clients.")
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        "Replication factor of topics created without one.",
        kind="int",
        minimum=1,
    )
    delete_topic_enable: bool = setting("delete.topic.enable", True, "Allow clients to delete topics.")
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 * 1024 * 1024,
        "Maximum size of a fetch response. A first batch that is larger is still returned.",
        kind="int",
        minimum=1024,
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        UNLIMITED,
        "Bytes per second that this broker may copy of throttled replicas: those that are not in sync and that "
        "follower.replication.throttled.replicas of their topic has.",
        minimum=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for leaders to move back.",
        minimum=1,
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        "Leaders are moved back to a broker if others lead more than this percentage of its partitions.",
        kind="int",
        minimum=0,
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        UNLIMITED,
        "Bytes per second that this broker may send to replicas that are not in sync, of the partitions that "
        "leader.replication.throttled.replicas of their topic has.",
        minimum=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        "How often to check for logs that need compaction.",
        minimum=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory for the keys of one compaction run. A log with more keys is compacted in several runs.",
        minimum=1024 * 1024,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True, "Compact topics whose cleanup.policy contains compact."
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often to write the checkpoint files. Recovery after a crash starts from the last checkpoint.",
        kind="int",
        minimum=1,
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", 1000, "How often to check for logs to fsync because of flush.ms.", minimum=1
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        300_000,
        "How often to check for segments to delete and producer ids to expire.",
        minimum=1,
    )
    log_scrub_bytes_per_second: int = setting(
        "log.scrub.bytes.per.second",
        2 * 1024 * 1024,
        "How fast a broker of a cluster reads its replicas in the background, to find damaged batches and repair them "
        "from another replica. 0 turns it off.",
        minimum=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Maximum number of fetch sessions. Consumers without one send all their partitions with every fetch.",
        kind="int",
        minimum=0,
    )
    node_id: int = setting("node.id", 1, "The id of this broker in its cluster.", kind="int", minimum=0)
    num_partitions: int = setting(
        "num.partitions",
        1,
        "Number of partitions of topics created without one.",
        kind="int",
        minimum=1,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        86_400_000,
        "Expire the state of an idempotent producer after this time without a batch.",
        kind="int",
        minimum=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        1024 * 1024,
        "How much a follower fetches of one partition at once. A first batch that is larger is still fetched.",
        kind="int",
        minimum=1,
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        10 * 1024 * 1024,
        "How much a follower fetches from one leader at once.",
        kind="int",
        minimum=1,
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        "How long a leader may hold a follower's fetch that finds nothing new.",
        kind="int",
        minimum=1,
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up for this time is removed from the in-sync replicas.",
        minimum=1,
    )
    replica_selector_class: str = setting(
        "replica.selector.class",
        "",
        f"Which replica consumers read from. Empty: the leader. `{RACK_AWARE_SELECTOR}`: a follower in the consumer's "
        "rack (`client.rack`), if the leader is in another one.",
        check=_check_selector,
    )
    zookeeper_connection_timeout_ms: int = setting(
        "zookeeper.connection.timeout.ms",
        18_000,
        "How long a broker of a cluster tries to reach ZooKeeper when it starts.",
        kind="int",
        minimum=1,
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        6000,
        "A broker that has lost contact with ZooKeeper for this long is no longer part of the cluster. Then other "
        "brokers lead its partitions.",
        kind="int",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedConfig:
    """Keys that DescribeConfigs reports but that cannot be set: their values come from elsewhere."""

    broker_id: int = setting("broker.id", 1, "Same as node.id.", kind="int")
    log_dirs: str = setting("log.dirs", "", "The data directory.")


_OWNERS: Final = (
    BrokerConfig,
    NetConfig,
    GroupConfig,
    ConsumerGroupConfig,
    TransactionConfig,
    SecurityConfig,
    ZooKeeperConfig,
    QuotaConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The whole configuration of a server.

    `static` has the keys given at startup, `cluster_wide` those set at run time for all brokers, and `per_broker` those
    set at run time for this broker, with their values as they were set.
    """

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    net: NetConfig = field(default_factory=NetConfig)
    log: LogConfig = field(default_factory=LogConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    consumer_groups: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    zookeeper: ZooKeeperConfig = field(default_factory=ZooKeeperConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    static: Mapping[str, str] = field(default_factory=dict, repr=False)  # these have secrets
    cluster_wide: Mapping[str, str] = field(default_factory=dict, repr=False)
    per_broker: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> ServerConfig:
        """Parse settings. Raises ConfigError for an unknown key, naming the nearest one, and for an invalid value."""
        static = dict(_in_milliseconds(_as_node_id(values)))
        return replace(cls()._overlaid(static), static=static)

    def with_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> ServerConfig:
        """Return this startup configuration with the settings made at run time applied. Raises ConfigError."""
        return replace(
            self._overlaid({**cluster_wide, **per_broker}),
            cluster_wide=dict(cluster_wide),
            per_broker=dict(per_broker),
        )

    def _overlaid(self, values: Mapping[str, str]) -> ServerConfig:
        parts: dict[type, dict[str, str]] = {owner: {} for owner in (*_OWNERS, LogConfig)}
        by_listener: dict[str, str] = {}
        limits: dict[tuple[str, str], int] = {}
        for key, value in values.items():
            owner, known = find_broker_key(key)
            parsed = replace(known, key=key).parse(value)  # an error names the broker's key, not the topic's
            if key.startswith(LISTENER_PREFIX) and owner is NetConfig:
                limits[key.removeprefix(LISTENER_PREFIX).partition(".")[0], known.key] = parsed
            elif key.startswith(LISTENER_PREFIX):
                by_listener[key] = value
            else:
                parts[owner][known.key] = value
        security = parse(SecurityConfig, parts[SecurityConfig], self.security)
        if by_listener:
            security = replace(security, by_listener={**security.by_listener, **by_listener})
        net = parse(NetConfig, parts[NetConfig], self.net)
        if limits:
            net = replace(net, by_listener={**net.by_listener, **limits})
        return replace(
            self,
            broker=parse(BrokerConfig, parts[BrokerConfig], self.broker),
            net=net,
            log=parse(LogConfig, parts[LogConfig], self.log),
            groups=parse(GroupConfig, parts[GroupConfig], self.groups),
            transactions=parse(TransactionConfig, parts[TransactionConfig], self.transactions),
            consumer_groups=parse(ConsumerGroupConfig, parts[ConsumerGroupConfig], self.consumer_groups),
            security=security,
            zookeeper=parse(ZooKeeperConfig, parts[ZooKeeperConfig], self.zookeeper),
            quotas=parse(QuotaConfig, parts[QuotaConfig], self.quotas),
        )

    def of_listeners(self) -> list[str]:
        """Return the keys that are set for one listener, sorted."""
        given = {*self.static, *self.cluster_wide, *self.per_broker}
        return sorted(key for key in given if key.startswith(LISTENER_PREFIX))

    def effective(self) -> dict[str, tuple[Setting, Any]]:
        """Return every broker key with its setting and effective value, sorted by key."""
        return {key: (known, self.value_of(key)) for key, (_, known) in sorted(_owners().items())}

    def value_of(self, key: str) -> Any:
        """Return the effective value of a broker key. Raises ConfigError."""
        owner, known = find_broker_key(key)
        parts = {
            BrokerConfig: self.broker,
            NetConfig: self.net,
            LogConfig: self.log,
            GroupConfig: self.groups,
            TransactionConfig: self.transactions,
            ConsumerGroupConfig: self.consumer_groups,
            SecurityConfig: self.security,
            ZooKeeperConfig: self.zookeeper,
            QuotaConfig: self.quotas,
        }
        return getattr(parts[owner], known.field)


def broker_keys() -> list[str]:
    """Return every key that a broker's configuration accepts."""
    return sorted([*_owners(), *_IN_OTHER_UNITS, *settings(DerivedConfig)])


def find_broker_key(key: str) -> tuple[type, Setting]:
    """Return the class that declares a broker key, and its setting. Raises ConfigError."""
    if key.startswith(LISTENER_PREFIX):
        own = key_of_listener(key)
        if own is not None:
            return SecurityConfig, settings(SecurityConfig)[own]
        limit = key.removeprefix(LISTENER_PREFIX).partition(".")[2]
        if limit in OF_A_LISTENER:
            return NetConfig, settings(NetConfig)[limit]
    try:
        return _owners()[key]
    except KeyError:
        raise _unknown(key) from None


def shown(values: Mapping[str, str]) -> dict[str, str]:
    """Return settings as they may be logged, without their secrets."""
    return {key: HIDDEN if find_broker_key(key)[1].is_secret else value for key, value in values.items()}


def check_dynamic(key: str, *, for_one_broker: bool) -> None:
    """Raise ConfigError unless the key can be set at run time, for one broker or for all of them."""
    if key in _IN_OTHER_UNITS or key in settings(DerivedConfig):
        mode = UpdateMode.READ_ONLY
    else:
        mode = find_broker_key(key)[1].update_mode
    if mode is UpdateMode.READ_ONLY:
        raise ConfigError(f"'{key}' is read at startup and cannot be changed at run time")
    if mode is UpdateMode.PER_BROKER and not for_one_broker:
        raise ConfigError(f"'{key}' cannot be set for all brokers, only for one: give the broker's id")


@cache
def _owners() -> dict[str, tuple[type, Setting]]:
    owners: dict[str, tuple[type, Setting]] = {}
    for owner in _OWNERS:
        owners.update({key: (owner, known) for key, known in settings(owner).items()})
    for known in settings(LogConfig).values():
        if known.broker_key:
            owners[known.broker_key] = (LogConfig, known)
    return owners


def _as_node_id(values: Mapping[str, str]) -> dict[str, str]:
    """Rename `broker.id` to `node.id`. Raises ConfigError if both are given and differ."""
    renamed = dict(values)
    broker_id = renamed.pop("broker.id", None)
    if broker_id is not None and renamed.setdefault("node.id", broker_id) != broker_id:
        raise ConfigError(f"broker.id={broker_id} and node.id={renamed['node.id']} are the same setting but differ")
    return renamed


def _in_milliseconds(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Convert hours and minutes to milliseconds. If several units are given, the finest takes precedence."""
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
        return ConfigError("'log.dirs' cannot be set; set the data directory with --data-dir")
    if key == "bootstrap.servers":
        return ConfigError(f"'{key}' is a setting of clients: give the settings of a broker")
    close = difflib.get_close_matches(key, broker_keys(), n=1, cutoff=0.5)
    topic_key = settings(LogConfig).get(key)
    if topic_key is not None and topic_key.broker_key:
        return ConfigError(f"'{key}' is a topic key; set its default for all topics with '{topic_key.broker_key}'")
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return ConfigError(f"unknown configuration key '{key}'{hint}")
