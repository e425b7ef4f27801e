"""The job `search`: the index is that of the log, after changes, deletes and kills; and the command that queries it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin, Producer
from skylog.cli.main import command_line
from skylog.pipeline.jobs.search import DocumentFields, SearchIndex, documents, search_job
from skylog.search_index import count_documents, search
from skylog.testing import BrokerProcess
from tests.spark.conftest import Commands

ROOT = Path(__file__).parents[3]


@pytest.fixture
def pages(skylog_broker: BrokerProcess) -> str:
    name = f"pages-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


def write(bootstrap: str, topic: str, *records: tuple[str, Any]) -> None:
    with Producer(bootstrap) as producer, producer.batch():
        for key, value in records:
            producer.send(topic, value, key)


def page(title: str, text: str) -> dict[str, str]:
    return {"title": title, "text": text}


def found(index: Path, words: str) -> set[str]:
    return {hit.id for hit in search(index, words).hits}


def test_the_index_follows_the_topic_and_every_value_can_be_found(
    spark: SparkSession, skylog_broker: BrokerProcess, pages: str, tmp_path: Path
) -> None:
    bootstrap, index = skylog_broker.bootstrap, tmp_path / "search.db"
    job = search_job([pages], SearchIndex(index))
    write(bootstrap, pages, ("/a", page("Comet", "over the harbour")), ("/b", page("Ferry", "in the harbour")))
    write(bootstrap, pages, ("/c", "plain harbour text"), ("/d", b"\xff harbour"), ("/e", {"body": "harbour lights"}))
    job.run(spark, bootstrap, once=True)
    assert found(index, "harbour") == {"/a", "/b", "/c", "/d", "/e"}
    write(bootstrap, pages, ("/a", page("Comet", "is gone")), ("/a", page("Comet", "is back")), ("/b", None))
    write(bootstrap, pages, ("/f", page("Harbour", "new")), ("/f", None), ("/never", None))
    job.run(spark, bootstrap, once=True)
    job.run(spark, bootstrap, once=True)
    assert found(index, "harbour") == {"/c", "/d", "/e"}
    assert (found(index, "comet back"), found(index, "comet gone")) == ({"/a"}, set())
    assert count_documents(index) == 4


def test_of_a_document_in_two_topics_the_newer_record_counts(spark: SparkSession) -> None:
    """The other topic is longer, so its offsets are higher."""
    rows = [("old", 0, 900, 1, "old"), ("new", 0, 5, 2, "new")]
    columns = "topic STRING, partition INT, offset LONG, seconds LONG, title STRING"
    records = spark.createDataFrame(rows, columns).selectExpr(
        "CAST('/a' AS BINARY) AS key",
        "CAST(to_json(struct(title)) AS BINARY) AS value",
        "topic",
        "partition",
        "offset",
        "timestamp_seconds(seconds) AS timestamp",
    )
    assert [row.title for row in documents(records).collect()] == ["new"]


def test_keys_that_are_no_text_stay_apart(spark: SparkSession) -> None:
    rows = [(bytes([0, 128]), 0), (bytes([0, 129]), 1), ("ö".encode(), 2)]
    records = spark.createDataFrame(rows, "key BINARY, offset LONG").selectExpr(
        "key",
        "CAST('text' AS BINARY) AS value",
        "'t' AS topic",
        "0 AS partition",
        "offset",
        "timestamp_seconds(offset) AS timestamp",
    )
    assert {row.id for row in documents(records).collect()} == {"0080", "0081", "ö"}


def test_events_are_documents_by_expressions(
    spark: SparkSession, skylog_broker: BrokerProcess, pages: str, tmp_path: Path
) -> None:
    def event(name: str, **attributes: str) -> dict[str, Any]:
        return {"event": name, "attributes": attributes}

    index = tmp_path / "search.db"
    fields = DocumentFields(
        "event STRING, attributes MAP<STRING, STRING>",
        "attributes.page",
        "attributes.title",
        "attributes.body",
        deleted="event = 'page.delete'",
        where="event IN ('page.publish', 'page.delete')",
    )
    key = "one user"
    write(
        skylog_broker.bootstrap,
        pages,
        (key, event("page.publish", page="/a", title="Comet", body="harbour")),
        (key, event("page.publish", page="/b", title="Ferry", body="harbour")),
        (key, event("page.view", page="/c")),
        (key, event("page.delete", page="/b")),
    )
    search_job([pages], SearchIndex(index), fields).run(spark, skylog_broker.bootstrap, once=True)
    assert found(index, "harbour") == {"/a"}
    assert count_documents(index) == 1


def test_the_index_is_that_of_the_log_at_whichever_step_its_writer_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pipeline.jobs.dying_index", str(tmp_path / "search.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    deaths, batches = re.findall(r"\d+", done.stdout)
    assert int(deaths) > 40
    assert int(batches) == 3


def test_the_command_indexes_and_answers(
    commands: Commands, skylog_broker: BrokerProcess, pages: str, tmp_path: Path
) -> None:
    write(skylog_broker.bootstrap, pages, ("/a", page("Comet", "over the harbour")), ("/b", page("Ferry", "at ten")))
    run = ["pipeline", "run", "search", pages, "--once", "--json", "--bootstrap", skylog_broker.bootstrap]
    said = commands.run(*run, directory=tmp_path)
    assert sum(json.loads(line)["records"] for line in said.splitlines()) == 2
    index = ["--index", str(tmp_path / "search.db")]
    answer = CliRunner().invoke(command_line(), ["search", "harbours", "--json", *index])
    assert json.loads(answer.stdout) == {
        "total": 1,
        "hits": [
            {
                "id": "/a",
                "title": "Comet",
                "score": json.loads(answer.stdout)["hits"][0]["score"],
                "changed_at": json.loads(answer.stdout)["hits"][0]["changed_at"],
                "snippet": "over the harbour",
                "matches": ["harbour"],
            }
        ],
    }
    shown = CliRunner().invoke(command_line(), ["search", "harbour", *index])
    assert shown.stdout.startswith("Comet  /a  ")
    assert "    over the harbour\n" in shown.stdout
    assert "1 document" in shown.stderr
