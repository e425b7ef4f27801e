"""The audit on Spark gives the same results as `skylog audit` for the same reports."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from skylog import Admin, Consumer, Producer
from skylog.audit import AUDIT_TOPIC, ConsumerAudit, Count, NoAuditTopicError, ProducerAudit, Report, Tier
from skylog.audit.books import Books
from skylog.audit.commit_metadata import encode_metadata
from skylog.audit.verdict import Balance
from skylog.cli.audit import balance_object
from skylog.model import TopicPartition
from skylog.pipeline.jobs.audit import Period, balance, reports
from skylog.pipeline.jobs.audit.books import BalanceQuery, BalanceResult, run_balance
from skylog.pipeline.jobs.audit.html_page import MOST_WINDOWS, HtmlPage
from skylog.pipeline.table import Table, TableError
from skylog.testing import BrokerProcess, produce, wait_until
from tests.cli.commands import run_skylog
from tests.pipeline.delta_readers import query
from tests.proof import IS_FULL, in_proof, some
from tests.spark.conftest import Commands

MINUTE_MS = 60_000
NOON_MS = 29_500_000 * MINUTE_MS  # early in 2026
LOCAL = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
SKYLOG = Path(sys.executable).with_name("skylog")


def count(messages: int, minute: int = 0, minutes: int = 1, uncertain: int = 0) -> Count:
    start_ms = NOON_MS + minute * MINUTE_MS
    return Count(start_ms, start_ms + minutes * MINUTE_MS, messages, messages * 100, uncertain)


def produced(topic: str, *counts: Count) -> Report:
    return Report(Tier.PRODUCED, "shop", topic, counts, NOON_MS)


def stored(topic: str, *counts: Count, partition: int = 0, start_offset: int = 0, end_offset: int = 1000) -> Report:
    return Report(Tier.STORED, "broker-1", topic, counts, NOON_MS, partition, start_offset, end_offset)


def consumed(
    topic: str, *counts: Count, group: str = "billing", start_offset: int = 0, end_offset: int = 1000
) -> Report:
    return Report(Tier.CONSUMED, group, topic, counts, NOON_MS, 0, start_offset, end_offset)


def landed(topic: str, *counts: Count, table: str = "warehouse") -> Report:
    return Report(Tier.LANDED, table, topic, counts, NOON_MS, 0, 0, 1000)


# -- the transforms, over reports that no broker has seen


def records(spark: SparkSession, messages: Sequence[Report | bytes | None]) -> DataFrame:
    """Messages as the data source reads them."""
    values = [each.encode() if isinstance(each, Report) else each for each in messages]
    rows = [(value, 0, offset) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "value BINARY, partition INT, offset LONG")


def balances(frame: DataFrame) -> list[Balance]:
    frame.persist()
    try:
        return list(BalanceResult(frame, 0, 0, 0).balances())
    finally:
        frame.unpersist()


def in_one_process(found: Sequence[Report], window_ms: int = MINUTE_MS, **options: Any) -> list[Balance]:
    books = Books(window_ms)
    for report in found:
        books.add(report)
    return books.balance(options.pop("now_ms", 1 << 62), **options)


class OffsetRange(TypedDict):
    start_offset: int
    end_offset: int


def random_reports(topic: str, chance: random.Random) -> Iterator[Report]:
    """Reports with losses, duplicates, spans and crashes, and with offsets that may contradict each other."""

    def counts() -> list[Count]:
        return [
            count(
                chance.choice([0, 1, 5, 50]),
                chance.randrange(-3, 6),
                chance.choice([1, 1, 1, 2, 3]),
                uncertain=chance.choice([0, 0, 0, 2]),
            )
            for _ in range(chance.randrange(4))
        ]

    def offsets() -> OffsetRange:
        start = chance.randrange(0, 100, 10)
        return {"start_offset": start, "end_offset": start + chance.randrange(0, 50, 10)}

    tiers = chance.sample(list(Tier), chance.randrange(1, 5))
    for _ in range(chance.randrange(1, 40)):
        match chance.choice(tiers):
            case Tier.PRODUCED:
                yield produced(topic, *counts())
            case Tier.STORED:
                yield stored(topic, *counts(), partition=chance.randrange(2), **offsets())
            case Tier.CONSUMED:
                yield replace(
                    consumed(topic, *counts(), group=chance.choice(["billing", "search"]), **offsets()),
                    partition=chance.randrange(3),
                )
            case Tier.LANDED:
                yield replace(landed(topic, *counts()), partition=chance.randrange(2), **offsets())


@pytest.fixture(scope="module")
def found() -> list[Report]:
    """Reports of many topics, mixed; some are there twice."""
    chance = random.Random(5)
    each = [list(random_reports(f"topic{number:02}", chance)) for number in range(60)]
    mixed: list[Report] = []
    while any(each):
        mixed.append(chance.choice([rest for rest in each if rest]).pop(0))
        if chance.random() < 0.1:
            mixed.append(chance.choice(mixed))
    return mixed


WIDE = {"window_ms": 3 * MINUTE_MS, "required": [Tier.STORED, Tier.LANDED]}
CHOSEN = {"topics": [*(f"topic{number:02}" for number in range(20)), "nowhere"], "groups": ["search", "nobody"]}
OPEN = {"groups": ["billing"], "now_ms": NOON_MS + 3 * MINUTE_MS, "grace_ms": 30_000}


@pytest.mark.parametrize("options", some([{}, {**WIDE, **OPEN, **CHOSEN}, WIDE, CHOSEN, OPEN], usual=2))
def test_any_reports_balance_as_they_do_in_one_process(
    spark: SparkSession, found: list[Report], options: dict[str, Any]
) -> None:
    expected = in_one_process(found, **options)
    assert len({each.verdict for each in expected}) > 2
    assert balances(balance(reports(records(spark, found)), **options)) == expected


def test_reports_are_there_once_and_stored_ones_take_the_place_of_earlier_ones(spark: SparkSession) -> None:
    first, second, again = (
        stored("orders", start_offset=0, end_offset=5),
        stored("orders", start_offset=5, end_offset=9),
        stored("orders", start_offset=5, end_offset=7),
    )
    other = stored("orders", partition=1, start_offset=3)
    reader = consumed("orders", start_offset=7)
    kept = reports(records(spark, [first, second, other, again, reader, first, reader])).collect()
    assert sorted(row.id for row in kept) == sorted(each.id for each in (first, other, again, reader))


def test_what_is_no_report_is_left_out(spark: SparkSession) -> None:
    text = produced("orders", count(3)).encode()
    odd: list[Report | bytes | None] = [b"no report", b"{}", b"[]", None, produced("orders", count(-1))]
    odd += [text.replace(b",300,", number) for number in (b",1e300,", b",1e999,", b",18446744073709551615,")]
    assert text.count(b",300,") == 1
    good = produced("orders", count(4))
    assert [row.id for row in reports(records(spark, [*odd, good])).collect()] == [good.id]


def test_the_period_is_of_windows_that_end_after_its_start_and_begin_before_its_end(spark: SparkSession) -> None:
    minutes = [count(1, minute) for minute in range(6)]
    found = [produced("orders", *minutes), stored("orders", *minutes)]

    def chosen(period: Period) -> list[int]:
        held = filter(period.includes, in_one_process(found))
        return [(each.window_start_ms - NOON_MS) // MINUTE_MS for each in held]

    assert chosen(Period(NOON_MS + 2 * MINUTE_MS, NOON_MS + 3 * MINUTE_MS + 1)) == [2, 3]
    assert chosen(Period(begins_ms=NOON_MS + 4 * MINUTE_MS + 1)) == [5]
    assert chosen(Period(until_ms=NOON_MS)) == []
    period = Period(NOON_MS + 90_000, NOON_MS + 3 * MINUTE_MS)
    assert chosen(period) == [1, 2]
    assert balances(balance(reports(records(spark, found)), period)) == list(
        filter(period.includes, in_one_process(found))
    )


def test_reports_that_wait_in_commits_count_unless_a_later_one_has_them(spark: SparkSession) -> None:
    def part(topic: str, first: int, last: int) -> Report:
        return consumed(topic, count(last - first), start_offset=first, end_offset=last)

    twice = part("twice", 4, 10)
    published = [part("rest", 0, 4), part("twice", 0, 4), twice, part("whole", 0, 10), part("elsewhere", 0, 10)]
    waiting = [part("rest", 4, 10), twice, part("whole", 0, 4), part("whole", 4, 10), part("alone", 0, 4)]
    waiting += [replace(part("rest", 4, 10), counts=[count(-1)])]
    found = balances(balance(reports(records(spark, published), waiting)))
    assert {each.topic: each.consumed["billing"] for each in found} == {
        "alone": 4,
        "elsewhere": 10,
        "rest": 10,
        "twice": 10,
        "whole": 10,
    }


# -- a cluster with all tiers


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A separate broker, because topics of other tests are not audited."""
    with BrokerProcess() as started:
        yield started


def skylog_on(broker: BrokerProcess, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_skylog(*arguments, variables={"SKYLOG_BOOTSTRAP": broker.bootstrap})
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done


def read_to(consumer: Consumer, offset: int) -> None:
    for message in consumer:
        if message.offset == offset:
            return


@pytest.fixture(scope="module")
def audited(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    """200 messages of four minutes: `orders` as it should be; of `clicks` a group skips five and reads seven twice."""
    admin = Admin(broker.bootstrap)
    for topic in (AUDIT_TOPIC, "orders", "clicks"):
        admin.create_topic(topic)
    journal_dir = tmp_path_factory.mktemp("journal")
    with Producer(broker.bootstrap, audit=ProducerAudit("shop", journal_dir=journal_dir)) as producer:
        for number in range(200):
            for topic in ("orders", "clicks"):
                producer.send(topic, f"{number:04}", timestamp_ms=NOON_MS + number * 1200)
    with Consumer("orders", "billing", broker.bootstrap, audit=ConsumerAudit()) as consumer:
        read_to(consumer, 199)
    with Consumer("clicks", "search", broker.bootstrap, audit=ConsumerAudit()) as consumer:
        read_to(consumer, 60)
        consumer.commit()
        consumer.seek("clicks", 0, 66)
        read_to(consumer, 199)
        consumer.commit()
        consumer.seek("clicks", 0, 193)
        read_to(consumer, 199)
    minutes = [count(50, minute) for minute in range(4)]
    produce(broker.bootstrap, AUDIT_TOPIC, [landed("orders", *minutes).encode()] * 2)
    tiers = ["--topic", "orders", "--group", "billing", "--tiers", "produced,stored,consumed,landed"]
    skylog_on(broker, "audit", "verify", *tiers, "--wait", 60)

    def is_told() -> bool:
        rows = json.loads(skylog_on(broker, "audit", "show", "--topic", "clicks", "--json").stdout)
        return sum(row["consumed"]["search"] for row in rows) == 202 and {row["stored"] for row in rows} == {50}

    wait_until(is_told, "the reports of the group", seconds=60)
    return broker


def objects(spark: SparkSession, broker: BrokerProcess, query: BalanceQuery | None = None) -> list[dict[str, Any]]:
    with run_balance(spark, broker.bootstrap, query or BalanceQuery(), NOON_MS * 2) as answer:
        return [balance_object(each) for each in answer.balances()]


def test_it_says_what_the_audit_of_one_process_says(spark: SparkSession, audited: BrokerProcess) -> None:
    shown = json.loads(skylog_on(audited, "audit", "show", "--json").stdout)
    assert len(shown) == 8
    assert objects(spark, audited) == shown
    chosen = ["--topic", "clicks", "--group", "nobody", "--window", "2m", "--tiers", "landed"]
    shown = json.loads(skylog_on(audited, "audit", "show", "--json", *chosen).stdout)
    query = BalanceQuery(
        window_ms=2 * MINUTE_MS, topics=["clicks"], groups=["nobody"], required=frozenset({Tier.LANDED})
    )
    assert objects(spark, audited, query) == shown


def test_a_loss_and_a_duplicate_are_found_and_named(spark: SparkSession, audited: BrokerProcess) -> None:
    rows = objects(spark, audited)
    assert {row["verdict"] for row in rows if row["topic"] == "orders"} == {"complete"}
    findings = [row["findings"] for row in rows if row["topic"] == "clicks"]
    named = {"tier": "consumed", "source": "search"}
    assert findings == [
        [],
        [{**named, "verdict": "lost", "messages": 5}],
        [],
        [{**named, "verdict": "duplicated", "messages": 7}],
    ]


@in_proof
def test_reports_in_commits_are_read_too(spark: SparkSession, audited: BrokerProcess) -> None:
    waiting = consumed("orders", *(count(50, minute) for minute in range(4)), group="waiting", end_offset=200)
    metadata = encode_metadata("waiting", TopicPartition("orders", 0), 200, [waiting])
    committing = LibraryConsumer({"bootstrap.servers": audited.bootstrap, "group.id": "waiting"})
    committing.commit(offsets=[LibraryPartition("orders", 0, 200, metadata)], asynchronous=False)
    committing.close()
    rows = objects(spark, audited, BalanceQuery(topics=["orders"]))
    assert [row["consumed"] for row in rows] == [{"billing": 50, "waiting": 50}] * 4
    assert rows == json.loads(skylog_on(audited, "audit", "show", "--topic", "orders", "--json").stdout)


def test_the_command_reports_and_ends_with_the_code_of_verify(
    commands: Commands, audited: BrokerProcess, tmp_path: Path
) -> None:
    outputs = ["--report", tmp_path / "audit.html", "--into", tmp_path / "table", "--bootstrap", audited.bootstrap]
    said = commands.run("pipeline", "run", "audit", "--once", *outputs, directory=tmp_path, code=1)
    conclusion = "not balanced: 8 windows, 6 complete, 1 lost, 1 duplicated"
    assert said == skylog_on(audited, "audit", "show").stdout + conclusion + "\n"
    assert skylog_on(audited, "audit", "verify", code=1).stdout.splitlines()[-1] == conclusion
    page = (tmp_path / "audit.html").read_text()
    assert '<td class="lost">lost 5 (group search)</td>' in page
    table = tmp_path / "table"
    right = "FROM t WHERE topic = 'orders' AND source <> 'waiting'"
    sums = query(table, f"SELECT tier, sum(messages)::INT {right} GROUP BY tier ORDER BY tier")
    assert sums == [("consumed", 200), ("landed", 200), ("produced", 200), ("stored", 200)]
    wrong = "SELECT source, finding, finding_messages FROM t WHERE finding IS NOT NULL ORDER BY window_start"
    assert query(table, wrong) == [("search", "lost", 5), ("search", "duplicated", 7)]


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: a JVM of its own")
def test_it_looks_again_and_again_at_a_period_that_moves() -> None:
    with BrokerProcess() as broker:
        options = ["--every", "1s", "--last", "1h", "--grace", "0s", "--json", "--bootstrap", broker.bootstrap]
        command: list[str | Path] = [SKYLOG, "pipeline", "run", "audit", *options, *LOCAL]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                while AUDIT_TOPIC not in (line := process.stderr.readline()):  # it waits for the topic
                    assert line
                Admin(broker.bootstrap).create_topic(AUDIT_TOPIC)
                assert json.loads(process.stdout.readline()) == []
                minute = (time.time_ns() // 1_000_000 - NOON_MS) // MINUTE_MS - 2
                old = [produced("orders", count(4)), stored("orders", count(4))]
                new = [produced("orders", count(3, minute)), stored("orders", count(3, minute), start_offset=1000)]
                produce(broker.bootstrap, AUDIT_TOPIC, [each.encode() for each in (*old, *new)])
                while not (rows := json.loads(process.stdout.readline())):
                    pass
                assert [(row["produced"], row["stored"]) for row in rows] == [(3, 3)]
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)
                assert process.returncode == 0
            finally:
                process.kill()


def test_options_that_contradict_each_other_are_refused(audited: BrokerProcess) -> None:
    for options in (
        ["--last", "1h", "--from", "2h"],
        ["--from", "soon"],
        ["--tiers", "brewed"],
        ["--report", "/no/page"],
    ):
        said = skylog_on(audited, "pipeline", "run", "audit", "--once", *options, code=2).stderr
        assert options[0] in said


def test_without_an_audit_topic_it_says_so(spark: SparkSession) -> None:
    with (
        BrokerProcess() as broker,
        pytest.raises(NoAuditTopicError, match=AUDIT_TOPIC),
        run_balance(spark, broker.bootstrap, BalanceQuery(), 0),
    ):
        pass


@in_proof
def test_windows_that_the_audit_topic_has_forgotten_are_left_out(spark: SparkSession) -> None:
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic(AUDIT_TOPIC)
        assert objects(spark, broker) == []
        old, new = count(4, -10), count(4)
        told = [produced("orders", old), b"none", produced("orders", new), stored("orders", old, new)]
        values = [each.encode() if isinstance(each, Report) else each for each in told]
        produce(broker.bootstrap, AUDIT_TOPIC, values)
        admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
        cut = LibraryPartition(AUDIT_TOPIC, 0, 1)
        admin.delete_records([cut])[LibraryPartition(AUDIT_TOPIC, 0)].result(20)
        with run_balance(spark, broker.bootstrap, BalanceQuery(), NOON_MS * 2) as answer:
            assert (answer.message_count, answer.foreign_count, answer.begins_ms) == (3, 1, NOON_MS)
            [row] = [balance_object(each) for each in answer.balances()]
        assert row["window_start_ms"] == NOON_MS
        assert [row] == json.loads(skylog_on(broker, "audit", "show", "--json").stdout)


# -- what is written


@in_proof
def test_a_table_takes_the_place_of_the_last_one_and_of_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    def answer(messages: int) -> BalanceResult:
        found = [produced("orders", count(messages)), stored("orders", count(messages))]
        return BalanceResult(balance(reports(records(spark, found))), 0, 0, 0)

    table = tmp_path / "table"
    for messages in (3, 4):
        answer(messages).save(table)
        [row] = Table(table).read(spark).filter("tier = 'stored'").collect()
        assert row.messages == messages
    assert [each.name for each in tmp_path.iterdir()] == ["table"]
    home = tmp_path / "home"
    home.mkdir()
    (home / "diary.txt").touch()
    for path in (home, home / "diary.txt"):
        with pytest.raises(TableError, match="use a new directory"):
            answer(3).save(path)
    assert (home / "diary.txt").exists()


def test_the_page_escapes_what_reports_say(tmp_path: Path) -> None:
    hostile = "<script>alert('&')</script>\u202e"
    found = [
        stored(hostile, count(4)),
        consumed(hostile, count(3), group=hostile),
        landed(hostile, count(4), table=hostile),
    ]
    page = HtmlPage()
    page.add(hostile, in_one_process(found))
    page.write(tmp_path / "audit.html", "not balanced", [f"about {hostile}"], NOON_MS)
    text = (tmp_path / "audit.html").read_text()
    assert "<script" not in text
    assert "\u202e" not in text
    assert text.count("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;") == 5
    assert '<td class="lost">lost 1 (group &lt;script' in text
    assert [each.name for each in tmp_path.iterdir()] == ["audit.html"]


def test_the_page_of_a_long_period_has_the_windows_that_matter(tmp_path: Path) -> None:
    minutes = [count(2, minute) for minute in range(MOST_WINDOWS + 100)]
    page = HtmlPage()
    page.add("orders", in_one_process([produced("orders", *minutes), stored("orders", *minutes[:-1], count(1, 599))]))
    page.write(tmp_path / "audit.html", "not balanced", [], NOON_MS)
    text = (tmp_path / "audit.html").read_text()
    assert text.count("<tr><td>2026-") == 1
    assert "599 of the windows are not listed" in text
    assert "<td>All windows</td><td>1,200</td><td>1,199</td>" in text
