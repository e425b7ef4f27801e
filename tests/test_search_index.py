"""The full-text index: what queries find, and that words follow documents."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.search_index import SearchError, count_documents, create_index, match_expression, search

PAGES = {
    "/comet": ("A comet over the harbour", "Watch it from the pier, when the lights are out."),
    "/ferry": ("The night ferry", "The ferry leaves the harbour at ten. Comets are seen from its deck."),
    "/cafe": ("Café Größe", "Coffee behind the market."),
}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "search.db"
    create_index(path)
    write(path, *((key, title, text, False) for key, (title, text) in PAGES.items()))
    return path


def write(path: Path, *rows: tuple[str, str, str, bool]) -> None:
    """Upsert, as the sink of jobs does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO documents (id, title, text, deleted) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "title = excluded.title, text = excluded.text, deleted = excluded.deleted",
            rows,
        )


def found(path: Path, words: str, limit: int = 10) -> list[str]:
    return [hit.id for hit in search(path, words, limit).hits]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("harbour", ["/comet", "/ferry"]),  # a title counts more than a text
        ("HARBOUR comets", ["/comet", "/ferry"]),
        ('"over the harbour"', ["/comet"]),
        ("harb*", ["/comet", "/ferry"]),
        ("harbour -ferry", ["/comet"]),
        ("cafe grosse", []),
        ("cafe größe", ["/cafe"]),  # letters without their accents; ß is a letter of its own
        ('ferry & "', ["/ferry"]),
        ("moon", []),
    ],
)
def test_documents_are_found_by_their_words(index: Path, words: str, expected: list[str]) -> None:
    assert found(index, words) == expected


def test_a_hit_has_the_place_of_the_words(index: Path) -> None:
    answer = search(index, "comet", 1)
    assert (answer.total, len(answer.hits)) == (2, 1)
    (ferry,) = [hit for hit in search(index, "comet").hits if hit.id == "/ferry"]
    assert ferry.document()["matches"] == ["Comets"]
    assert ferry.snippet == PAGES["/ferry"][1]


def test_words_follow_changes_and_deletes(index: Path) -> None:
    write(index, ("/comet", "Clouds", "No stars tonight.", False), ("/ferry", "", "", True), ("/none", "", "", True))
    assert found(index, "comet") == found(index, "ferry") == []
    assert found(index, "clouds stars") == ["/comet"]
    assert count_documents(index) == 2
    write(index, ("/ferry", "The ferry is back", "", False))
    assert found(index, "ferry") == ["/ferry"]
    with closing(sqlite3.connect(index)) as connection:
        connection.execute("VACUUM")
        connection.execute("INSERT INTO documents_words (documents_words, rank) VALUES ('integrity-check', 1)")
    assert found(index, "ferry") == ["/ferry"]


@given(st.text(max_size=60))
def test_no_query_is_an_error_of_the_database(words: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        try:
            expression = match_expression(words)
        except SearchError:
            return
        connection.execute("SELECT * FROM words WHERE words MATCH ?", (expression,)).fetchall()


def test_mistakes_are_named(index: Path, tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="name at least one word"):
        search(index, "-ferry & -")
    with pytest.raises(SearchError, match="longer than 1000"):
        search(index, "x" * 1001)
    with pytest.raises(SearchError, match=r"there is no index .*skylog pipeline run search TOPIC"):
        search(tmp_path / "none.db", "x")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(SearchError, match="not a database"):
        search(tmp_path / "text", "x")
    with pytest.raises(SearchError, match="cannot create the index"):
        create_index(tmp_path / "text")
