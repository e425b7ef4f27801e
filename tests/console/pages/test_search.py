"""`/search` as HTML and as JSON, over an index that the job `search` writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skylog.search_index import create_index
from skylog.testing import BrokerProcess
from tests.console.conftest import RunningConsole, running_console

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "search.db"
    create_index(path)
    rows = [("/comet", "A comet", f"over the harbour {HOSTILE}"), ("/ferry", "", "in the harbour")]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO documents (id, title, text) VALUES (?, ?, ?)", rows)
    return path


@pytest.fixture(scope="module")
def searchable(broker: BrokerProcess, index: Path) -> Iterator[RunningConsole]:
    with running_console(broker, environment={"SKYLOG_SEARCH_INDEX": str(index)}) as console:
        yield console


def test_documents_are_found_and_shown_as_text(searchable: RunningConsole) -> None:
    page = searchable.get("/search?q=harbour").text
    assert "2 documents" in page
    assert "<mark>harbour</mark> &lt;script&gt;" in page
    assert HOSTILE not in page
    document: Any = searchable.json("/search?q=comet")
    assert document["total"] == 1
    (hit,) = document["hits"]
    assert (hit["id"], hit["title"]) == ("/comet", "A comet")
    assert [part for part, is_match in hit["parts"] if is_match] == []  # the word is in the title


def test_an_empty_query_and_one_without_an_answer_are_no_errors(searchable: RunningConsole) -> None:
    assert "Finds documents with all words" in searchable.get("/search").text
    assert "No document has “moon”" in searchable.get("/search?q=moon").text
    assert searchable.get("/search?q=-x").status_code == 400
    assert 'href="/search"' in searchable.get("/").text


def test_a_console_without_an_index_says_how_to_make_one(console: RunningConsole) -> None:
    response = console.get("/search?q=x")
    assert response.status_code == 400
    assert "--search-index" in response.text
    assert 'href="/search"' not in console.get("/").text
