"""A full-text index in a SQLite file: its tables and its queries. Needs no Spark and no server.

    documents(number, id, title, text, changed_at, deleted)    the documents
    documents_words(title, text)                               their words: FTS5 over `documents`
    documents_offsets(topic, partition, end_offset)            the records that they cover; see the job `search`

Triggers change the words in the transaction that changes a document, so both are always in step. A document that is
written as deleted removes itself. Readers and the writer do not block each other.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from skylog.errors import SkylogError

DEFAULT_INDEX: Final = Path("search.db")
INDEX_VARIABLE: Final = "SKYLOG_SEARCH_INDEX"
DOCUMENTS: Final = "documents"
MAX_QUERY: Final = 1000
MAX_HITS: Final = 1000

_PATIENCE_S: Final = 10.0
_SNIPPET_WORDS: Final = 24
_TITLE_WEIGHT: Final = 5.0
_MATCH_START, _MATCH_END = "\x02", "\x03"
_TERM: Final = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS documents (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL DEFAULT '',
        changed_at TIMESTAMP,
        deleted BOOLEAN NOT NULL DEFAULT FALSE)""",
    """CREATE VIRTUAL TABLE IF NOT EXISTS documents_words USING fts5(
        title, text, content='documents', content_rowid='number', tokenize='porter unicode61 remove_diacritics 2')""",
    """CREATE TRIGGER IF NOT EXISTS documents_added AFTER INSERT ON documents BEGIN
        INSERT INTO documents_words (rowid, title, text) VALUES (new.number, new.title, new.text);
        DELETE FROM documents WHERE number = new.number AND new.deleted;
    END""",
    """CREATE TRIGGER IF NOT EXISTS documents_changed AFTER UPDATE ON documents BEGIN
        INSERT INTO documents_words (documents_words, rowid, title, text)
            VALUES ('delete', old.number, old.title, old.text);
        INSERT INTO documents_words (rowid, title, text) VALUES (new.number, new.title, new.text);
        DELETE FROM documents WHERE number = new.number AND new.deleted;
    END""",
    """CREATE TRIGGER IF NOT EXISTS documents_removed AFTER DELETE ON documents BEGIN
        INSERT INTO documents_words (documents_words, rowid, title, text)
            VALUES ('delete', old.number, old.title, old.text);
    END""",
)
_FIND: Final = f"""
    SELECT id, documents.title, changed_at, -bm25(documents_words, {_TITLE_WEIGHT}, 1.0) AS score,
        snippet(documents_words, 1, '{_MATCH_START}', '{_MATCH_END}', '…', {_SNIPPET_WORDS})
    FROM documents_words JOIN documents ON number = documents_words.rowid
    WHERE documents_words MATCH ? ORDER BY score DESC, id LIMIT ?"""
_COUNT: Final = "SELECT count(*) FROM documents_words WHERE documents_words MATCH ?"


class SearchError(SkylogError):
    """The index or the query cannot be used. The message says why."""


@dataclass(frozen=True)
class Hit:
    """A document that matches. `parts` are the snippet's pieces of text, and whether each matches the query."""

    id: str
    title: str
    score: float
    changed_at: str | None
    parts: Sequence[tuple[str, bool]]

    @property
    def snippet(self) -> str:
        return "".join(text for text, _ in self.parts)

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title,
            "score": round(self.score, 3),
            "changed_at": self.changed_at,
            "snippet": self.snippet,
            "matches": [text for text, is_match in self.parts if is_match],
        }


@dataclass(frozen=True)
class Answer:
    """The best hits, and how many documents match."""

    hits: Sequence[Hit]
    total: int


def create_index(path: Path) -> None:
    """Create the tables that the file does not have yet. Raises SearchError."""
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        reason = "this Python's SQLite has no FTS5" if "fts5" in str(error) else str(error)
        raise SearchError(f"cannot create the index {path}: {reason}") from error


def search(path: Path, words: str, limit: int = 10) -> Answer:
    """Return the documents that have all words, best first. Raises SearchError.

    A word stands for its other forms, too: `comet` finds "comets". `"two words"` is a phrase, `comet*` a prefix, and
    `-word` excludes documents. Titles count more than texts.
    """
    query = match_expression(words)
    with _reading(path) as connection:
        connection.execute("BEGIN")  # both queries see the same documents
        (total,) = connection.execute(_COUNT, (query,)).fetchone()
        rows = connection.execute(_FIND, (query, min(limit, MAX_HITS))).fetchall()
    hits = [Hit(key, title, score, changed_at, _parts(snippet)) for key, title, changed_at, score, snippet in rows]
    return Answer(hits, total)


def count_documents(path: Path) -> int:
    """Return the number of documents. Raises SearchError."""
    with _reading(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        return int(count)


def match_expression(words: str) -> str:
    """Translate a query to FTS5's syntax. Every word is quoted, so no text is an error there."""
    if len(words) > MAX_QUERY:
        raise SearchError(f"the query is longer than {MAX_QUERY} characters")
    wanted, unwanted = list[str](), list[str]()
    for sign, phrase, word in _TERM.findall(words):
        text = phrase or word
        if any(map(str.isalnum, text)):
            is_prefix = bool(word) and word.endswith("*")
            term = '"' + text.replace('"', " ").replace("\0", " ") + '"' + ("*" if is_prefix else "")
            (unwanted if sign else wanted).append(term)
    if not wanted:
        raise SearchError("name at least one word to search for")
    found = " AND ".join(wanted)
    return f"({found}) NOT ({' OR '.join(unwanted)})" if unwanted else found


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise SearchError(f"there is no index {path}; make it with: skylog pipeline run search TOPIC --index {path}")
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise SearchError(f"cannot search {path}: {error}") from error


def _parts(snippet: str) -> list[tuple[str, bool]]:
    found = []
    for number, piece in enumerate(re.split(f"[{_MATCH_START}{_MATCH_END}]", snippet)):
        if piece:
            found.append((piece, number % 2 == 1))
    return found
