"""The job: compares every series of the brokers' metrics with its rules, and publishes alerts that change.

Each alert is a key of a compacted topic, so its last values are the current alerts. Time is that of the metrics: the
newest of any broker is now. A series that ends while others continue is silent after a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from skylog.alert import ALERTS_TOPIC, AlertState
from skylog.pipeline import Job, Topic, job
from skylog.pipeline.jobs.monitoring.rules import RULES, AlertRule
from skylog.pipeline.jobs.monitoring.watch import STATE, Change, SeriesState, end, sample, silence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METRICS_TOPIC: Final = "_skylog_metrics"
METRIC: Final = "node_id INT, time_ms BIGINT, name STRING, labels MAP<STRING, STRING>, value DOUBLE"
"""The schema of a message in the metrics topic."""
ALERTS: Final = Topic(ALERTS_TOPIC, 1, {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)})
_REMOVED: Final = "the rule was removed"
LATE: Final = "20 seconds"  # two intervals of publishing: how far brokers may be apart

_COLUMNS: Final = (
    "key STRING, name STRING, state STRING, node_id INT, labels MAP<STRING, STRING>, "
    "condition STRING, measured DOUBLE, since_ms BIGINT, at_ms BIGINT"
)


def monitoring(metrics: DataFrame, rules: Sequence[AlertRule] = RULES) -> DataFrame:
    """Return the alerts that are raised or cleared: `key`, `timestamp`, and the fields of `skylog.alert.Alert`."""
    concerned = [F.when(F.col("name").isin([rule.metric, rule.divided_by or rule.metric]), rule.name) for rule in rules]
    samples = (
        metrics.withWatermark("timestamp", LATE)
        .withColumn("rule", F.explode(F.array_compact(F.array(*concerned))))
        .withColumn("series", F.to_json(F.map_from_entries(F.array_sort(F.map_entries("labels")))))
        .select("rule", "node_id", "series", "name", "time_ms", "value", "timestamp")
    )
    by_series = samples.groupBy("rule", "node_id", "series")
    changes = by_series.transformWithState(_Watch(rules), _COLUMNS, "append", "eventTime")
    return changes.withColumn("timestamp", F.timestamp_millis("at_ms"))


class _Watch(StatefulProcessor):
    """Follows a series of a broker under a rule. See `watch` for its state."""

    def __init__(self, rules: Sequence[AlertRule]) -> None:
        self._rules = {rule.name: rule for rule in rules}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("series", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        rule, state = self._rules[key[0]], self._known()
        for row in sorted(rows, key=lambda row: (row.time_ms, row.name != rule.divided_by)):
            state, changes = sample(rule, state, row.name, row.time_ms, row.value)
            yield from (_row(key, rule.condition, change) for change in changes)
        self._store(rule, state)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        rule, state, now_ms = self._rules.get(key[0]), self._known(), expiredTimerInfo.getExpiryTimeInMs()
        if rule is None:  # it was removed since the last start, and its samples no longer come
            yield from (_row(key, _REMOVED, change) for change in end(state, now_ms))
            self._state.clear()
            return
        state = state._replace(timer_ms=None)
        if state.last_ms + rule.silent_s * 1000 > now_ms:
            self._store(rule, state)
            return
        state, changes = silence(rule, state, now_ms)
        yield from (_row(key, rule.condition, change) for change in changes)
        if rule.is_about_silence:
            self._store(rule, state, now_ms)  # the next timer finds out whether the rule was removed
        else:
            self._state.clear()

    def _known(self) -> SeriesState:
        found = self._state.get()
        return SeriesState() if found is None else SeriesState(*found)

    def _store(self, rule: AlertRule, state: SeriesState, since_ms: int | None = None) -> None:
        """Store the state, with a timer that finds its silence since its last sample or `since_ms`."""
        if state.timer_ms is None:
            timer_ms = int((state.last_ms if since_ms is None else since_ms) + rule.silent_s * 1000)
            self._handle.registerTimer(timer_ms)
            state = state._replace(timer_ms=timer_ms)
        self._state.update(state)

    def close(self) -> None:
        """Nothing to close."""


def _row(key: Any, condition: str, change: Change) -> Row:
    name, node_id, series = key
    return Row(
        key=f"{name} {node_id} {series}",
        name=name,
        state=(AlertState.RAISED if change.is_raised else AlertState.CLEARED).value,
        node_id=node_id,
        labels=json.loads(series),
        condition=condition,
        measured=change.value,
        since_ms=change.since_ms,
        at_ms=change.at_ms,
    )


def monitoring_job(
    reads: Sequence[str] = (METRICS_TOPIC,), into: Topic = ALERTS, rules: Sequence[AlertRule] = RULES
) -> Job:
    """Return the job."""

    @job(reads, into, schema=METRIC, name="monitoring")
    def alerts(metrics: DataFrame) -> DataFrame:
        return monitoring(metrics, rules)

    return alerts
