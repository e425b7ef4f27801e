"""A standalone broker, which keeps the metadata in a file in its data directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from skylog.broker.broker import Broker
from skylog.broker.config import ServerConfig
from skylog.broker.internal_topics import REPLICATION_FACTOR_KEYS, TRANSACTION_MIN_ISR_KEY
from skylog.clock import Clock, SystemClock
from skylog.cluster import EmbeddedStore
from skylog.errors import SkylogError
from skylog.storage import LogDir
from skylog.storage.files import LogFile, OpenFile


def standalone_broker(
    data_dir: Path,
    config: ServerConfig | None = None,
    clock: Clock | None = None,
    open_file: OpenFile = LogFile,
) -> Broker:
    """Create a standalone broker. Raises SkylogError if the data directory cannot be used."""
    clock = clock or SystemClock()
    log_dir = LogDir(data_dir, clock, open_file)
    store = EmbeddedStore(log_dir.path)
    if store.is_new:
        _check_nothing_is_lost(log_dir)
    return Broker(log_dir, store.open_session(), _for_one_broker(config or ServerConfig()), clock)


def _for_one_broker(config: ServerConfig) -> ServerConfig:
    """Return a configuration with which the broker can create its internal topics alone."""
    alone = dict.fromkeys(REPLICATION_FACTOR_KEYS.values(), "1")
    return replace(
        config,
        groups=replace(config.groups, offsets_topic_replication_factor=1),
        transactions=replace(config.transactions, state_log_replication_factor=1, state_log_min_isr=1),
        static={**config.static, **alone, TRANSACTION_MIN_ISR_KEY: "1"},
    )


def _check_nothing_is_lost(log_dir: LogDir) -> None:
    """Raise SkylogError if there are logs: without metadata they would be removed as those of deleted topics."""
    if log_dir.last_incarnation is not None:
        raise SkylogError(
            f"{log_dir.path} was used by a broker of a cluster, which keeps its topics in ZooKeeper; "
            "start it with --zookeeper, or choose another --data-dir"
        )
    folders = log_dir.folders_with_data()
    if folders:
        raise SkylogError(
            f"{log_dir.path} has no metadata, but {len(folders)} logs with messages, such as "
            f"{folders[0].name}: restore metadata.json from a backup, or remove the logs"
        )
