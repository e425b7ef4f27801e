"""What a development cluster consists of, and the settings of its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from skylog.errors import ConfigError

DEFAULT_BROKERS: Final = 3
DEFAULT_FIRST_PORT: Final = 9092
_MOST_REPLICAS: Final = 3
_SECRETS: Final = "secrets"
_OWN_SETTINGS: Final = ("node.id", "broker.id", "advertised.listeners")


def secrets_of(data_dir: Path) -> Path:
    """Return where a cluster in this directory has its secrets, if it is secured."""
    return data_dir / _SECRETS


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """None stands for the value of the last run in the same directory, or for the default of the first run.

    `port` is the port of the first broker; the others get the next ones. 0 picks free ports. `settings` are settings
    of all brokers. `secrets` is the folder of `skylog secure` for a secured cluster, which is written if it is missing.
    """

    brokers: int | None = None
    port: int | None = None
    has_console: bool = True
    console_port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "info"
    secrets: Path | None = None

    def check(self) -> None:
        """Raise ConfigError for a setting that brokers cannot share."""
        for key in _OWN_SETTINGS:
            if key in self.settings:
                raise ConfigError(f"--set {key}: each broker of a development cluster has its own; leave it out")

    def broker_settings(self, brokers: int) -> dict[str, str]:
        """Return the settings of all brokers: topics have up to three replicas, and one of three may fail."""
        replicas = str(min(brokers, _MOST_REPLICAS))
        defaults = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
        }
        if brokers >= _MOST_REPLICAS:
            defaults["min.insync.replicas"] = str(_MOST_REPLICAS - 1)
        else:
            defaults["transaction.state.log.min.isr"] = "1"
        return {**defaults, **self.settings}
