"""`/audit` as HTML and as JSON, with the reports of a real audit topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from skylog.audit import AUDIT_TOPIC, Count, Report, Tier
from skylog.client import Admin
from skylog.testing import BrokerProcess, produce
from tests.console.conftest import RunningConsole, running_console

MINUTE_MS: Final = 60_000
HOSTILE: Final = "<script>alert(1)</script>"
NOW_MS: Final = time.time_ns() // 1_000_000
# Windows that are neither open nor more than a day old: noon is ten minutes ago.
NOON_MS: Final = NOW_MS // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS


class Tiers:
    """Reports of one topic, window by window, as its tiers write them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.reports: list[Report] = []
        self._end = 0

    def window(
        self,
        minute: int,
        *,
        produced: int | None = None,
        stored: int = 0,
        read: int | None = None,
        landed: int | None = None,
    ) -> Tiers:
        start_ms = NOON_MS + minute * MINUTE_MS

        def add(tier: Tier, source: str, messages: int, end: int | None) -> None:
            counts = [Count(start_ms, start_ms + MINUTE_MS, messages, messages * 10)]
            place = () if end is None else (0, self._end, end)
            self.reports.append(Report(tier, source, self.topic, counts, NOW_MS, *place))

        end = self._end + stored
        if produced is not None:
            add(Tier.PRODUCED, "shop", produced, None)
        add(Tier.STORED, "broker-1", stored, end)
        if read is not None:
            add(Tier.CONSUMED, "billing", read, end)
        if landed is not None:
            add(Tier.LANDED, "warehouse", landed, end)
        self._end = end
        return self


def all_reports() -> list[Report]:
    complete = Tiers("complete").window(0, produced=10, stored=10, read=10, landed=10)
    lost = Tiers("lost").window(0, produced=10, stored=10, read=10).window(1, produced=10, stored=7, read=7)
    twice = Tiers("duplicated").window(0, produced=10, stored=10, read=12)
    late = Tiers("late").window(0, produced=10, stored=10, read=10).window(1, produced=5, stored=5)
    open_ = Tiers("open").window(120, produced=10, stored=4)  # it stays so, however long the tests before take
    old = Tiers("old").window(-3000, produced=10, stored=9)
    hostile = Tiers(HOSTILE).window(0, produced=2, stored=1)
    many = Tiers("many")
    for minute in range(-250, 0):
        many.window(minute, produced=1, stored=1)
    alone = Tiers("alone").window(0, stored=3).window(1, stored=3)
    tiers = (complete, lost, twice, late, open_, old, hostile, many, alone)
    return [report for each in tiers for report in each.reports]


@pytest.fixture(scope="module")
def audited() -> Iterator[RunningConsole]:
    """A console of a cluster whose audit topic has all these reports."""
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic(AUDIT_TOPIC, 1)
        produce(broker.bootstrap, AUDIT_TOPIC, [b"no report", *(report.encode() for report in all_reports())])
        with running_console(broker) as console:
            yield console


def document(console: RunningConsole, query: str = "") -> Any:
    return console.json(f"/audit?{query}")


@pytest.mark.parametrize(
    ("topic", "verdicts", "expected"),
    [
        ("complete", ["complete"], []),
        ("lost", ["lost", "complete"], ["3 messages that producers counted are not stored."]),
        ("duplicated", ["duplicated"], ["Group billing read 2 messages more than were stored."]),
        ("late", ["late", "complete"], ["Group billing has not read 5 messages yet."]),
        ("open", ["open"], []),
    ],
)
def test_every_window_has_a_verdict_and_descriptions(
    audited: RunningConsole, topic: str, verdicts: list[str], expected: list[str]
) -> None:
    windows = document(audited, f"topic={topic}")["windows"]
    assert [window["verdict"] for window in windows] == verdicts
    assert windows[0]["descriptions"] == expected


def test_an_open_window_says_until_when_it_is_open(audited: RunningConsole) -> None:
    [window] = document(audited, "topic=open")["windows"]
    assert window["closes_ms"] == window["window_end_ms"] + 2 * MINUTE_MS
    html = audited.get("/audit?topic=open").text
    assert "Open until" in html
    assert "are not stored" not in html


def test_what_cannot_be_judged_is_folded_away(audited: RunningConsole) -> None:
    found = document(audited)
    assert "alone" not in {window["topic"] for window in found["windows"]}
    assert found["folded"] == {"alone": 2}
    assert "2 windows cannot be judged" in audited.get("/audit").text
    assert document(audited, "topic=alone&unjudged=1")["paging"]["total"] == 2


def test_the_verdicts_are_metrics(audited: RunningConsole) -> None:
    text = audited.get("/metrics").text
    assert 'skylog_audit_windows{topic="lost",verdict="lost"} 1' in text
    assert 'skylog_audit_messages{topic="lost",verdict="lost"} 3' in text
    assert "kafka_brokers 1" in text


def test_a_window_shows_what_each_tier_counted(audited: RunningConsole) -> None:
    [window] = document(audited, "topic=complete")["windows"]
    assert (window["produced"], window["stored"]) == (10, 10)
    assert (window["consumed"], window["landed"]) == ({"billing": 10}, {"warehouse": 10})
    assert (window["window_start_ms"], window["window_end_ms"]) == (NOON_MS, NOON_MS + MINUTE_MS)


@pytest.mark.parametrize(
    ("topic", "colour"), [("lost", "bad"), ("duplicated", "bad"), ("late", "late"), ("complete", "good")]
)
def test_a_verdict_has_a_word_and_a_colour(audited: RunningConsole, topic: str, colour: str) -> None:
    html = audited.get(f"/audit?topic={topic}").text
    assert f'<span class="tag {colour}">{topic}</span>' in html
    if colour != "good":
        assert f'<tr class="{colour}">' in html


def test_only_problems_are_shown_on_request(audited: RunningConsole) -> None:
    found = document(audited, "problems=1")
    assert {window["verdict"] for window in found["windows"]} == {"lost", "duplicated", "late"}
    assert found["verdicts"]["complete"] > 200  # which are still counted


def test_windows_of_a_period_are_shown_on_request(audited: RunningConsole) -> None:
    assert document(audited, f"topic=lost&since={NOON_MS + MINUTE_MS}")["paging"]["total"] == 1
    assert document(audited, f"topic=lost&until={NOON_MS + MINUTE_MS}")["paging"]["total"] == 1
    assert document(audited, f"topic=lost&until={NOON_MS}")["windows"] == []
    assert document(audited, "topic=old&since=2020-01-01T00:00")["paging"]["total"] == 1


def test_each_topic_has_its_totals_and_the_worst_comes_first(audited: RunningConsole) -> None:
    totals = document(audited)["totals"]
    assert totals[0]["verdict"] == "lost"
    [late] = [row for row in totals if row["topic"] == "late"]
    assert (late["produced"], late["stored"], late["consumed"]) == (15, 15, {"billing": 10})
    assert late["windows"] == {"late": 1, "complete": 1}


def test_windows_are_paginated_from_the_newest_on(audited: RunningConsole) -> None:
    first, last = document(audited, "topic=many"), document(audited, "topic=many&page=3")
    assert (first["paging"]["total"], first["paging"]["pages"]) == (250, 3)
    assert (len(first["windows"]), len(last["windows"])) == (100, 50)
    times = [window["window_start_ms"] for window in (*first["windows"], *last["windows"])]
    assert times == sorted(times, reverse=True)
    assert "page=2" in audited.get("/audit?topic=many").text


def test_names_in_reports_are_shown_as_text(audited: RunningConsole) -> None:
    html = audited.get("/audit").text
    assert "&lt;script&gt;alert(1)" in html
    assert HOSTILE not in html


def test_messages_that_are_not_reports_are_counted_and_ignored(audited: RunningConsole) -> None:
    assert document(audited)["foreign_count"] == 1
    assert "1 message of the audit topic is not a report" in audited.get("/audit").text


def test_every_verdict_is_explained(audited: RunningConsole) -> None:
    meanings = document(audited)["meanings"]
    assert set(meanings) == {"lost", "duplicated", "late", "complete", "open", "unjudged"}
    html = audited.get("/audit").text
    assert all(meaning in html for meaning in meanings.values())


def test_the_overview_counts_the_windows_of_the_last_day_only(audited: RunningConsole) -> None:
    verdicts: Any = audited.json("/")["verdicts"]
    [lost] = [verdict for verdict in verdicts if verdict["name"] == "Lost"]
    assert lost["state"] == "bad"
    assert (
        "The counts of 3 windows of" in lost["description"]
    )  # of the topics lost, duplicated and the hostile one; `old` is older


@pytest.mark.parametrize("query", ["since=noon", "page=x", "page=-1"])
def test_an_invalid_query_is_refused(audited: RunningConsole, query: str) -> None:
    assert audited.get(f"/audit?{query}").status_code == 400


def test_without_an_audit_topic_the_page_explains_how_to_get_one() -> None:
    with BrokerProcess() as broker, running_console(broker) as console:
        found = document(console)
        assert (found["exists"], found["windows"]) == (False, [])
        assert "Producer(audit=ProducerAudit(" in console.get("/audit").text
