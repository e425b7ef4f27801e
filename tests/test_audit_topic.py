"""Reading the reports of a cluster, all of them or the latest only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skylog.audit import AUDIT_TOPIC, Count, NoAuditTopicError, Report, Tier
from skylog.audit_topic import AuditTopic
from skylog.client import Admin
from skylog.testing import BrokerProcess, produce

MINUTE_MS = 60_000


def publish(broker: BrokerProcess, minutes: range) -> None:
    """A report for each minute, written at its end."""
    reports = [
        Report(
            Tier.PRODUCED,
            "shop",
            "orders",
            [Count(minute * MINUTE_MS, (minute + 1) * MINUTE_MS, 1, 1)],
            (minute + 1) * MINUTE_MS,
        )
        for minute in minutes
    ]
    produce(broker.bootstrap, AUDIT_TOPIC, [report.encode() for report in reports])


def minutes_of(topic: AuditTopic) -> list[int]:
    balances = topic.books(MINUTE_MS).balance(1 << 60)
    return [each.window_start_ms // MINUTE_MS for each in balances if each.window_start_ms >= topic.begins_ms]


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


def test_only_the_latest_reports_are_kept_and_older_windows_are_not_judged(broker: BrokerProcess) -> None:
    limited, whole = AuditTopic(broker.bootstrap, max_reports=10), AuditTopic(broker.bootstrap)
    with pytest.raises(NoAuditTopicError):
        limited.refresh()
    Admin(broker.bootstrap).create_topic(AUDIT_TOPIC, 1)
    publish(broker, range(30))
    limited.refresh()
    assert limited.begins_ms == 21 * MINUTE_MS  # the first that was read is of minute 20
    assert minutes_of(limited) == list(range(21, 30))
    publish(broker, range(30, 35))
    progress: list[tuple[int, int]] = []
    limited.refresh(lambda done, total: progress.append((done, total)))
    assert minutes_of(limited) == list(range(26, 35))
    assert progress[-1] == (5, 5)  # only the new ones are read
    whole.refresh()
    assert (whole.begins_ms, minutes_of(whole)) == (0, list(range(35)))
