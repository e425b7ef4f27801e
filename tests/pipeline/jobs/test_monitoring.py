"""Alerts are raised and cleared by the metrics that brokers publish to the log."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from skylog import Admin, Producer
from skylog.alert import Alert, AlertState
from skylog.errors import ConfigError
from skylog.pipeline.jobs.monitoring import RULES, AlertRule, monitoring_job, read_rules
from skylog.pipeline.jobs.monitoring.job import ALERTS, METRICS_TOPIC, _Watch
from skylog.pipeline.jobs.monitoring.watch import SeriesState, sample, silence
from skylog.testing import BrokerProcess, consume, wait_until

LAG = AlertRule("lag", "kafka_consumergroup_lag", above=100)


def changes(rule: AlertRule, *samples: tuple[float, str, float]) -> list[tuple[bool, int, int, float | None]]:
    """The changes of a series with samples of (seconds, metric, value)."""
    state, found = SeriesState(), []
    for at_s, name, value in samples:
        state, changed = sample(rule, state, name, int(at_s * 1000), value)
        found += [tuple(change) for change in changed]
    return found  # type: ignore[return-value]


def test_an_alert_is_raised_after_its_time_and_cleared_at_once() -> None:
    rule = AlertRule("slow", "m", above=5, for_s=20)
    values = [(0, 9), (10, 9), (15, 1), (20, 9), (30, 9), (40, 9), (50, 9), (60, 5), (70, 4)]
    found = changes(rule, *((at_s, "m", value) for at_s, value in values))
    assert found == [(True, 40_000, 40_000, 9), (False, 40_000, 60_000, 5)]
    assert changes(rule, (0, "m", 9), (30, "m", 9), (20, "m", 1)) == [(True, 30_000, 30_000, 9)]  # an old sample


def test_a_quotient_and_an_increase_are_compared() -> None:
    disk = AlertRule("disk", "free", below=0.1, divided_by="total")
    assert changes(disk, (0, "free", 1), (1, "total", 100), (1, "free", 5), (2, "free", 50)) == [
        (True, 1000, 1000, 0.05),
        (False, 1000, 2000, 0.5),
    ]
    errors = AlertRule("errors", "m", above=2, increase_s=30)
    counter = [(0, 100), (10, 101), (20, 103), (30, 103), (45, 103), (55, 1), (60, 4)]  # it starts again at 55 s
    assert changes(errors, *((at_s, "m", value) for at_s, value in counter)) == [
        (True, 20_000, 20_000, 3),
        (False, 20_000, 45_000, 0),
        (True, 60_000, 60_000, 4),
    ]


def test_silence_clears_an_alert_or_raises_one() -> None:
    raised = SeriesState(last_ms=1000, breached_ms=500, raised_ms=900)
    assert silence(LAG, raised, 61_000)[1] == [(False, 900, 61_000, None)]
    quiet = AlertRule("quiet", "m")
    state, found = silence(quiet, SeriesState(last_ms=1000), 61_000)
    assert found == [(True, 61_000, 61_000, None)]
    assert silence(quiet, state, 99_000)[1] == []
    assert sample(quiet, state, "m", 100_000, 1)[1] == [(False, 61_000, 100_000, 1)]


class Store:
    """The state of one series, and its timers, in place of Spark's."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.timers: list[int] = []

    def getValueState(self, name: str, schema: str) -> Store:  # noqa: N802 - Spark's name
        return self

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802 - Spark's name
        self.timers.append(at_ms)

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = tuple(value)

    def clear(self) -> None:
        self.value = None


def expire(store: Store, key: Any, *rules: AlertRule) -> list[tuple[str, str, str]]:
    """Let the next timer expire in a job with these rules. Return key, state and condition of the alerts."""
    watch, at_ms = _Watch(rules), store.timers.pop(0)
    watch.init(store)  # type: ignore[arg-type]
    timer = SimpleNamespace(getExpiryTimeInMs=lambda: at_ms)
    return [(row.key, row.state, row.condition) for row in watch.handleExpiredTimer(key, None, timer)]


def test_a_rule_that_is_removed_clears_its_alerts() -> None:
    quiet, store = AlertRule("quiet", "m"), Store()
    key = ("lag", 1, "{}")
    watch = _Watch([LAG])
    watch.init(store)  # type: ignore[arg-type]
    (raised,) = watch.handleInputRows(key, iter([Row(name=LAG.metric, time_ms=1000, value=500.0)]), None)
    assert (raised.key, raised.state) == ("lag 1 {}", "raised")
    assert expire(store, key, quiet) == [("lag 1 {}", "cleared", "the rule was removed")]
    assert (store.value, store.timers) == (None, [])


def test_a_rule_about_silence_that_is_removed_clears_its_alerts() -> None:
    """No sample comes, so only a timer can find out."""
    quiet, store = AlertRule("quiet", "m"), Store()
    key = ("quiet", 1, "{}")
    store.update(SeriesState(last_ms=1000))
    store.registerTimer(61_000)
    assert expire(store, key, quiet) == [("quiet 1 {}", "raised", quiet.condition)]
    assert expire(store, key, quiet) == []
    assert store.timers == [181_000]
    assert expire(store, key, LAG) == [("quiet 1 {}", "cleared", "the rule was removed")]
    assert (store.value, store.timers) == (None, [])


def test_rules_come_from_a_file_and_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nname = "lag"\nmetric = "kafka_consumergroup_lag"\nabove = 100\n')
    assert read_rules(path) == [LAG]
    assert LAG.condition == "kafka_consumergroup_lag above 100"
    for text, problem in (
        ("", "has no"),
        ('[[rule]]\nname = "x"', "a rule has no metric"),
        ('[[rule]]\nname = "x"\nmetric = "m"\nover = 1', "'over' is not a key of a rule; known are name, metric"),
        ('[[rule]]\nname = "x"\nmetric = "m"\nabove = "1"', "above = '1' is not a number"),
        ('[[rule]]\nname = "x"\nmetric = "m"\nabove = 1\nbelow = 1', "above or below, not both"),
        ('[[rule]]\nname = "x"\nmetric = "m"\n[[rule]]\nname = "x"\nmetric = "m"', "the same name"),
        ("[[rule", "cannot read"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            read_rules(path)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_alerts_follow_the_metrics_of_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    """One broker publishes its own metrics; those of another are written by hand, and end."""
    rules = (LAG, AlertRule("open files", "process_open_fds", above=0), RULES[0], RULES[1])
    with BrokerProcess(options=("--metrics-topic",)) as broker:
        bootstrap = broker.bootstrap
        wait_until(lambda: METRICS_TOPIC in [each.name for each in Admin(bootstrap).list_topics()], "the metrics topic")
        wait_until(lambda: consume(bootstrap, METRICS_TOPIC), "metrics")
        job, now_ms = monitoring_job(rules=rules), time.time_ns() // 1_000_000

        def report(at_ms: int, *values: tuple[str, dict[str, Any], float]) -> None:
            with Producer(bootstrap) as producer:
                for name, labels, value in values:
                    metric = {"node_id": 2, "time_ms": at_ms, "name": name, "labels": labels, "value": value}
                    producer.send(METRICS_TOPIC, metric, name, timestamp_ms=at_ms)

        def run() -> list[tuple[str, int, str, dict[str, str]]]:
            """Every change so far: name, broker, state and labels."""
            job.run(spark, bootstrap, once=True, state=tmp_path / "state")
            found = [Alert.decode(message.value or b"") for message in consume(bootstrap, ALERTS.name)]
            shown = [each for each in found if (each.name, each.node_id) != ("lag", 1)]  # the job's own lag
            return [(each.name, each.node_id, each.state.value, dict(each.labels)) for each in shown]

        lag = {"consumergroup": "billing", "partition": "0", "topic": "clicks"}
        report(now_ms - 200_000, ("process_start_time_seconds", {}, 1), (LAG.metric, lag, 500))
        report(now_ms - 190_000, ("process_start_time_seconds", {}, 1), (LAG.metric, {**lag, "partition": "1"}, 50))
        raised, cleared = AlertState.RAISED.value, AlertState.CLEARED.value
        first = run()
        expected = [
            ("open files", 1, raised, {}),
            ("lag", 2, raised, lag),
            ("lag", 2, cleared, lag),  # the series has ended
            ("broker is silent", 2, raised, {}),
        ]
        assert sorted(map(str, first)) == sorted(map(str, expected))
        report(now_ms, ("process_start_time_seconds", {}, 1))
        assert run()[4:] == [("broker is silent", 2, cleared, {})]
