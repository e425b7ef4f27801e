"""The rules of alerts: limits for the metrics of a broker, by default and from a file. Independent of Spark."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from skylog.errors import ConfigError


@dataclass(frozen=True)
class AlertRule:
    """Raise an alert while `metric` is above or below a limit, for at least `for_s`. A series has its own alert.

    With `divided_by`, the quotient of two metrics is compared, with `increase_s` the increase of a counter over that
    time. `silent_s` is how long the last value holds: after that, the alert is cleared. A rule without a limit raises
    its alert then.
    """

    name: str
    metric: str
    above: float | None = None
    below: float | None = None
    for_s: float = 0.0
    divided_by: str | None = None
    increase_s: float = 0.0
    silent_s: float = 60.0

    def __post_init__(self) -> None:
        if self.above is not None and self.below is not None:
            raise ConfigError(f"rule '{self.name}': set above or below, not both")
        if self.silent_s <= 0 or self.for_s < 0 or self.increase_s < 0:
            raise ConfigError(f"rule '{self.name}': times must be positive")

    @property
    def is_about_silence(self) -> bool:
        """Whether there is no limit: the alert is raised if the metric is not reported."""
        return self.above is None and self.below is None

    def is_breached(self, value: float) -> bool:
        """Whether the value is beyond the limit."""
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)

    @property
    def condition(self) -> str:
        """The rule in words."""
        what = self.metric if self.divided_by is None else f"{self.metric} / {self.divided_by}"
        if self.is_about_silence:
            return f"no {what} for {self.silent_s:g} s"
        if self.increase_s:
            what = f"increase of {what} in {self.increase_s:g} s"
        limit = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        return f"{what} {limit}" + (f" for {self.for_s:g} s" if self.for_s else "")


RULES: Final = (
    AlertRule("broker is silent", "process_start_time_seconds"),
    AlertRule("log is offline", "skylog_offline_logs", above=0),
    AlertRule("log is damaged", "skylog_damaged_ranges", above=0),
    AlertRule("partition is offline", "kafka_controller_kafkacontroller_offlinepartitionscount", above=0, for_s=60),
    AlertRule("too few replicas", "kafka_server_replicamanager_underminisrpartitioncount", above=0, for_s=60),
    AlertRule("replicas out of sync", "kafka_server_replicamanager_underreplicatedpartitions", above=0, for_s=600),
    AlertRule("disk fills up", "skylog_disk_free_bytes", below=0.1, divided_by="skylog_disk_total_bytes", for_s=300),
    AlertRule("background failures", "skylog_background_failures_total", above=0, increase_s=600),
    AlertRule("event loop pauses", "skylog_event_loop_long_pauses_total", above=5, increase_s=600),
    AlertRule("consumer falls behind", "kafka_consumergroup_lag", above=10_000, for_s=900),
)
"""The default rules, as in the Prometheus rules of docs/metrics.md."""


def read_rules(path: Path) -> Sequence[AlertRule]:
    """Read a TOML file with a table `[[rule]]` for each rule. Raises ConfigError."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    found = document.get("rule")
    if not isinstance(found, list) or not found:
        raise ConfigError(f"{path} has no [[rule]]")
    rules = [_rule(path, each) for each in found]
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: several rules have the same name")
    return rules


def _rule(path: Path, given: Any) -> AlertRule:
    known = {each.name: each for each in fields(AlertRule)}
    texts = ("name", "metric", "divided_by")
    for key, value in given.items():
        if key not in known:
            raise ConfigError(f"{path}: '{key}' is not a key of a rule; known are {', '.join(known)}")
        if not isinstance(value, str if key in texts else (int, float)) or isinstance(value, bool):
            raise ConfigError(f"{path}: {key} = {value!r} is not a {'text' if key in texts else 'number'}")
    if missing := {"name", "metric"} - given.keys():
        raise ConfigError(f"{path}: a rule has no {min(missing)}")
    return AlertRule(**given)
