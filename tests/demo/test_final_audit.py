"""The audit at the end of the demo, against a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from skylog.audit import AUDIT_TOPIC, ConsumerAudit, Count, ProducerAudit, Report, Tier
from skylog.client import Admin, Consumer, Producer
from skylog.demo.final_audit import is_balanced, print_balances, wait_for_balance
from skylog.demo.layout import NEWSFEED
from skylog.testing import BrokerProcess, produce


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with 500 messages in each of `whole` and `short`, counted by all tiers except the landed one."""
    journals = tmp_path_factory.mktemp("journals")
    with BrokerProcess() as broker:
        admin = Admin(broker.bootstrap)
        admin.create_topic(AUDIT_TOPIC, 1)
        for topic in ("whole", "short"):
            admin.create_topic(topic, 1)
            audit = ProducerAudit("website", journal_dir=journals)
            with Producer(broker.bootstrap, audit=audit) as producer:
                for number in range(500):
                    producer.send(topic, str(number), timestamp_ms=1_700_000_000_000)
            with Consumer(topic, NEWSFEED, broker.bootstrap, audit=ConsumerAudit()) as consumer:
                left = 500
                deadline = time.monotonic() + 30
                while left and time.monotonic() < deadline:
                    left -= len(consumer.consume())
                assert not left
        yield broker


def land(bootstrap: str, topic: str, messages: int) -> None:
    """Report that a table holds `messages` of the topic's 500 messages."""
    start_ms = 1_700_000_000_000 // 60_000 * 60_000
    counts = [Count(start_ms, start_ms + 60_000, messages, messages * 3)]
    report = Report(Tier.LANDED, topic, topic, counts, start_ms, partition=0, start_offset=0, end_offset=500)
    produce(bootstrap, AUDIT_TOPIC, [report.encode()])


def test_counts_that_agree_in_all_tiers_balance(audited: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    land(audited.bootstrap, "whole", 500)
    balances = wait_for_balance(audited.bootstrap, "whole", NEWSFEED, since_ms=0, timeout_s=30)
    print_balances("whole", balances)
    assert is_balanced(balances)
    assert capsys.readouterr().out.splitlines()[2].split()[2:] == ["500", "500", "500", "500", "complete"]


def test_a_table_that_lacks_messages_is_shown_as_lost(
    audited: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    land(audited.bootstrap, "short", 497)
    balances = wait_for_balance(audited.bootstrap, "short", NEWSFEED, since_ms=0, timeout_s=8)
    print_balances("short", balances)
    assert not is_balanced(balances)
    assert "lost 3 (landed in short)" in capsys.readouterr().out


def test_a_topic_without_reports_does_not_balance(audited: BrokerProcess) -> None:
    assert not is_balanced(wait_for_balance(audited.bootstrap, "no_such_topic", NEWSFEED, since_ms=0, timeout_s=0))
