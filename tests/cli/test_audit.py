"""`skylog audit` as a command, with reports in the topic and commits of a real broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from skylog.audit import AUDIT_TOPIC, Count, Report, Tier
from skylog.audit.commit_metadata import encode_metadata
from skylog.model import TopicPartition as Partition
from tests.broker.process import BrokerThread

from .conftest import Skylog, running_broker
from .terminal import in_terminal

MINUTE_MS = 60_000
NOON_MS = int(datetime(2026, 3, 1, 12, 0).timestamp() * 1000)  # local time, as it is shown


@pytest.fixture(scope="module")
def skylog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Skylog]:
    """A separate broker: other tests expect one without an audit.

    It does not count what it stores. The topics here are empty, and a broker that counts would correct the reports of
    stored messages that these tests make up.
    """
    with BrokerThread(tmp_path_factory.mktemp("audit") / "data") as broker:
        audited = Skylog(f"127.0.0.1:{broker.port}")
        audited.create(AUDIT_TOPIC)
        yield audited


def count(messages: int, minute: int = 0, at_ms: int = NOON_MS) -> Count:
    start_ms = at_ms + minute * MINUTE_MS
    return Count(start_ms, start_ms + MINUTE_MS, messages, messages * 100)


def produced(topic: str, *counts: Count) -> Report:
    return Report(Tier.PRODUCED, "shop", topic, counts, NOON_MS)


def stored(topic: str, *counts: Count) -> Report:
    return Report(Tier.STORED, "broker-1", topic, counts, NOON_MS, 0, 0, sum(each.messages for each in counts))


def consumed(topic: str, *counts: Count, group: str = "billing", end_offset: int = 1000) -> Report:
    return Report(Tier.CONSUMED, group, topic, counts, NOON_MS, 0, 0, end_offset)


def publish(skylog: Skylog, *reports: Report | bytes) -> None:
    producer = Producer({"bootstrap.servers": skylog.bootstrap})
    for report in reports:
        producer.produce(AUDIT_TOPIC, report.encode() if isinstance(report, Report) else report)
    assert producer.flush(20) == 0


def commit(skylog: Skylog, topic: str, *pending: Report, group: str = "billing") -> None:
    """Commit like an audited consumer that could not publish its reports."""
    skylog.create(topic)
    metadata = encode_metadata(group, Partition(topic, 0), 1000, pending)
    committing = Consumer({"bootstrap.servers": skylog.bootstrap, "group.id": group})
    committing.commit(offsets=[TopicPartition(topic, 0, 1000, metadata)], asynchronous=False)
    committing.close()


def verdicts(skylog: Skylog, topic: str, *options: str) -> list[tuple[str, int]]:
    """What `show` finds: verdict and number of messages."""
    rows = skylog.json("audit", "show", "--topic", topic, "--json", *options)
    return [(row["verdict"], sum(finding["messages"] for finding in row["findings"])) for row in rows]


# -- show


def test_show_has_a_line_per_window_and_a_column_per_group(skylog: Skylog, topic: str) -> None:
    publish(
        skylog,
        produced(topic, count(1200), count(5, 1)),
        stored(topic, count(1200), count(2, 1)),
        consumed(topic, count(1200), count(2, 1), group="billing", end_offset=1202),
        consumed(topic, count(1200), count(2, 1), group="search", end_offset=1202),
    )
    heading, columns, *lines = skylog("audit", "show", "--topic", topic).stdout.splitlines()
    assert heading == f"{topic}  2 windows, 1 complete, 1 lost"
    assert columns.split("  ")[0] == "WINDOW"
    assert "CONSUMED BY billing  CONSUMED BY search" in columns
    assert lines[0].split() == ["2026-03-01", "12:00:00", "1,200", "1,200", "1,200", "1,200", "complete"]
    assert lines[1].split() == ["2026-03-01", "12:01:00", "5", "2", "2", "2", "lost", "3", "(stored)"]


def test_show_prints_json_for_scripts(skylog: Skylog, topic: str) -> None:
    landed = Report(Tier.LANDED, "warehouse", topic, [count(3)], NOON_MS, 0, 0, 4)
    publish(skylog, stored(topic, count(4)), consumed(topic, count(5)), landed)
    [row] = skylog.json("audit", "show", "--topic", topic, "--json")
    assert row["topic"] == topic
    assert (row["window_start_ms"], row["window_end_ms"]) == (NOON_MS, NOON_MS + MINUTE_MS)
    assert (row["produced"], row["stored"], row["consumed"], row["landed"]) == (
        None,
        4,
        {"billing": 5},
        {"warehouse": 3},
    )
    assert row["verdict"] == "lost"
    assert row["findings"] == [
        {"tier": "landed", "source": "warehouse", "verdict": "lost", "messages": 1},
        {"tier": "consumed", "source": "billing", "verdict": "duplicated", "messages": 1},
    ]


def test_show_has_the_bytes_of_each_tier(skylog: Skylog, topic: str) -> None:
    landed = Report(Tier.LANDED, "warehouse", topic, [count(20)], NOON_MS, 0, 0, 20)
    publish(skylog, stored(topic, count(20), count(1, 1)), consumed(topic, count(20), count(1, 1)), landed)
    rows = skylog.json("audit", "show", "--topic", topic, "--json")
    assert [row["bytes"] for row in rows] == [
        {"produced": None, "stored": 2000, "consumed": {"billing": 2000}, "landed": {"warehouse": 2000}},
        {"produced": None, "stored": 100, "consumed": {"billing": 100}, "landed": {"warehouse": 0}},
    ]
    _, columns, line, *_ = skylog("audit", "show", "--topic", topic, "--bytes").stdout.splitlines()
    assert columns.split()[:5] == ["WINDOW", "PRODUCED", "BYTES", "STORED", "BYTES"]
    assert line.split("12:00:00")[1].split()[:6] == ["-", "-", "20", "2.0", "kB", "20"]
    assert "BYTES" not in skylog("audit", "show", "--topic", topic).stdout


def test_a_required_tier_without_counts_is_late(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(4)), stored(topic, count(4)))
    assert verdicts(skylog, topic, "--tiers", "produced,stored") == [("complete", 0)]
    assert verdicts(skylog, topic, "--tiers", "produced,stored,consumed") == [("late", 4)]
    said = skylog("audit", "verify", "--topic", topic, "--tiers", "consumed, landed", code=1).stdout
    assert "late 4 (consumed), late 4 (landed)" in said


def test_an_unknown_tier_is_rejected(skylog: Skylog) -> None:
    for command in ("show", "verify"):
        said = skylog("audit", command, "--tiers", "stored,brewed", code=2).stderr
        assert "'brewed' is not a tier" in said


def test_show_filters_windows_by_time(skylog: Skylog, topic: str) -> None:
    minutes = [count(1, minute) for minute in range(5)]
    publish(skylog, produced(topic, *minutes), stored(topic, *minutes))
    chosen = ["--since", "2026-03-01T12:01:30", "--until", "2026-03-01T12:03"]
    rows = skylog.json("audit", "show", "--topic", topic, "--json", *chosen)
    assert [(row["window_start_ms"] - NOON_MS) // MINUTE_MS for row in rows] == [1, 2]


def test_show_merges_windows(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(1), count(2, 1)), stored(topic, count(1), count(2, 1)))
    [row] = skylog.json("audit", "show", "--topic", topic, "--json", "--window", "2m")
    assert (row["produced"], row["stored"], row["verdict"]) == (3, 3, "complete")


def test_show_filters_groups(skylog: Skylog, topic: str) -> None:
    publish(skylog, stored(topic, count(4)), consumed(topic, count(4)), consumed(topic, count(1), group="search"))
    assert verdicts(skylog, topic, "--group", "billing") == [("complete", 0)]
    assert verdicts(skylog, topic, "--group", "nobody") == [("late", 4)]
    assert verdicts(skylog, topic) == [("lost", 3)]


def test_a_window_is_open_until_its_grace_is_over(skylog: Skylog, topic: str) -> None:
    this_minute_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS
    publish(skylog, produced(topic, count(4, -1, this_minute_ms)), stored(topic, count(3, -1, this_minute_ms)))
    assert verdicts(skylog, topic, "--grace", "1h") == [("open", 1)]
    assert verdicts(skylog, topic, "--grace", "0s") == [("lost", 1)]


def test_verdicts_have_colours_in_a_terminal(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(4), count(4, 1)), stored(topic, count(4), count(3, 1)))
    with in_terminal(skylog, "audit", "show", "--topic", topic) as (terminal, _):
        terminal.wait_for("\x1b[1;31mlost 1 (stored)")
    assert "\x1b[32mcomplete" in terminal.seen


def test_messages_that_are_not_reports_are_skipped_with_a_note(skylog: Skylog, topic: str) -> None:
    publish(skylog, b"no report", b"{}", stored(topic, count(-1)), produced(topic, count(4)), stored(topic, count(4)))
    done = skylog("audit", "show", "--topic", topic)
    assert "complete" in done.stdout
    assert "messages of the audit topic are not reports and were skipped" in done.stderr


def test_without_an_audit_topic_the_error_explains_what_to_do(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as address:
        for command, code in (("show", 1), ("verify", 2)):
            said = Skylog(address)("audit", command, code=code).stderr
            assert AUDIT_TOPIC in said
            assert 'audit=ProducerAudit("app")' in said


@pytest.mark.parametrize(
    ("option", "value"), [("--grace", "soon"), ("--window", "60"), ("--window", "1ms"), ("--since", "x")]
)
def test_an_invalid_time_is_rejected(skylog: Skylog, option: str, value: str) -> None:
    assert option in skylog("audit", "show", option, value, code=2).stderr


# -- reports in commits


def test_reports_that_wait_in_a_commit_count_once(skylog: Skylog, topic: str) -> None:
    report = consumed(topic, count(4), group=topic)
    commit(skylog, topic, report, group=topic)
    publish(skylog, stored(topic, count(4)))
    assert verdicts(skylog, topic) == [("complete", 0)]
    publish(skylog, report)
    assert verdicts(skylog, topic) == [("complete", 0)]


def test_reports_in_a_commit_that_were_put_together_and_published_do_not_count(skylog: Skylog, topic: str) -> None:
    commit(skylog, topic, consumed(topic, count(4), group=topic), group=topic)
    publish(skylog, stored(topic, count(6)), consumed(topic, count(6), group=topic, end_offset=1200))
    assert verdicts(skylog, topic) == [("complete", 0)]


def test_metadata_of_other_applications_is_left_alone(skylog: Skylog, topic: str) -> None:
    skylog.create(topic)
    committing = Consumer({"bootstrap.servers": skylog.bootstrap, "group.id": topic})
    committing.commit(offsets=[TopicPartition(topic, 0, 3, "{'my': notes}")], asynchronous=False)
    committing.close()
    publish(skylog, produced(topic, count(1)), stored(topic, count(1)))
    assert verdicts(skylog, topic) == [("complete", 0)]


# -- verify


def test_counts_that_balance_verify(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(4)), stored(topic, count(4)), consumed(topic, count(4)))
    assert skylog("audit", "verify", "--topic", topic).stdout == "balanced: 1 window, 1 complete\n"


def test_a_loss_and_a_duplicate_are_named_and_do_not_verify(skylog: Skylog, topic: str) -> None:
    publish(
        skylog,
        produced(topic, count(4), count(4, 1), count(4, 2)),
        stored(topic, count(4), count(3, 1), count(4, 2)),
        consumed(topic, count(4), count(3, 1), count(6, 2)),
    )
    lines = skylog("audit", "verify", "--topic", topic, code=1).stdout.splitlines()
    assert lines == [
        f"2026-03-01 12:01:00  {topic}  lost 1 (stored)",
        f"2026-03-01 12:02:00  {topic}  duplicated 2 (group billing)",
        "not balanced: 3 windows, 1 complete, 1 lost, 1 duplicated",
    ]
    printed = skylog("audit", "verify", "--topic", topic, "--json", code=1).stdout
    assert '"is_balanced":false' in printed
    assert '"windows":{"complete":1,"lost":1,"duplicated":1}' in printed


def test_a_late_group_does_not_verify(skylog: Skylog, topic: str) -> None:
    publish(skylog, stored(topic, count(4)), consumed(topic, count(3), end_offset=3))
    assert "late 1 (group billing)" in skylog("audit", "verify", "--topic", topic, code=1).stdout


def test_nothing_to_judge_is_not_a_success(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(4)))
    assert skylog("audit", "verify", "--topic", topic, code=2).stdout == "nothing to judge: 1 window, 1 unjudged\n"
    assert skylog("audit", "verify", "--topic", "nobody-reports-this", code=2).stdout.startswith("nothing to judge")


def test_verify_waits_for_what_is_missing_without_grace(skylog: Skylog, topic: str) -> None:
    this_minute_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS
    publish(skylog, produced(topic, count(4, 0, this_minute_ms)))
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    with skylog.start("audit", "verify", "--topic", topic, "--group", "billing", "--wait", "30", **options) as process:
        publish(skylog, stored(topic, count(4, 0, this_minute_ms)))
        publish(skylog, consumed(topic, count(4, 0, this_minute_ms)))
        said, _ = process.communicate(timeout=30)
    assert said == "balanced: 1 window, 1 complete\n"
    assert process.returncode == 0


def test_verify_waits_for_the_required_tiers(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(4)), consumed(topic, count(4), end_offset=4))
    assert "balanced" in skylog("audit", "verify", "--topic", topic).stdout
    chosen = ["--topic", topic, "--tiers", "produced,stored,consumed", "--wait", "30"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    assert "late 4 (stored)" in skylog("audit", "verify", *chosen[:-1], "0", code=1).stdout
    with skylog.start("audit", "verify", *chosen, **options) as process:
        publish(skylog, stored(topic, count(4)))
        said, _ = process.communicate(timeout=30)
    assert (said, process.returncode) == ("balanced: 1 window, 1 complete\n", 0)


def test_verify_waits_no_longer_than_given(skylog: Skylog, topic: str) -> None:
    publish(skylog, produced(topic, count(4)), stored(topic, count(3)))
    said = skylog("audit", "verify", "--topic", topic, "--wait", "0.5", code=1).stdout
    assert "lost 1 (stored)" in said


def test_windows_that_the_audit_topic_has_forgotten_are_left_out(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as address:
        skylog = Skylog(address)
        skylog.create(AUDIT_TOPIC)
        old, new = count(4, -10), count(4)
        publish(
            skylog, produced("orders", old), stored("orders", old), produced("orders", new), stored("orders", old, new)
        )
        admin: Any = AdminClient({"bootstrap.servers": address})
        admin.delete_records([TopicPartition(AUDIT_TOPIC, 0, 1)])[TopicPartition(AUDIT_TOPIC, 0)].result(20)
        done = skylog("audit", "verify")
        assert done.stdout == "balanced: 1 window, 1 complete\n"
        assert "the audit topic begins at" in done.stderr
