"""Dies at each step of a write to an index, one after the other: `python -m tests.pipeline.jobs.dying_index PATH`.

A child process creates the index if it does not exist, and applies the next batch of changes. The first one is killed
at its first step, the next one at the second, until one gets through; then the same with the next batch. A step is a
call of SQLite. After each death the documents and their words must be those of the stored offset.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from skylog.model import TopicPartition
from skylog.pipeline.databases.store import Kind, RowLayout, open_store
from skylog.search_index import DOCUMENTS, create_index, search

BATCHES = 3
CALLS = ("connect", "execute", "executemany", "fetchall", "close")
PARTITION = TopicPartition("pages", 0)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
LAYOUT = RowLayout(
    {"id": Kind.TEXT, "title": Kind.TEXT, "text": Kind.TEXT, "changed_at": Kind.TIME, "deleted": Kind.BOOLEAN}, ("id",)
)


def batch(number: int) -> dict[str, str | None]:
    """Each batch changes some of six documents, adds and deletes others."""
    numbers = range(number * 2, number * 2 + 5)
    return {str(n % 6): None if (n + number) % 3 == 0 else f"batch{number} word{n}" for n in numbers}


def expected(batches: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for number in range(batches):
        for key, text in batch(number).items():
            found.pop(key, None)
            if text is not None:
                found[key] = text
    return found


def work(path: Path) -> None:
    create_index(path)
    store = open_store(f"sqlite:///{path}", DOCUMENTS)
    before = store.offsets()
    done = before.get(PARTITION, 0)
    rows = [(key, "title", text or "", NOW, text is None) for key, text in batch(done).items()]
    store.apply(LAYOUT, rows, before, {PARTITION: done + 1})


def die_at(step: int) -> None:
    steps = count(1)

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in CALLS and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


def child_got_through(path: Path, step: int) -> bool:
    child = os.fork()
    if child == 0:
        die_at(step)
        work(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, f"step {step}: status {status}"
    return status == 0


def check(path: Path) -> int:
    """Compare documents and words with the offset that is stored with them. Return the offset."""
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'documents_offsets'").fetchall():
            return 0
        rows = connection.execute("SELECT end_offset FROM documents_offsets").fetchall()
        done: int = rows[0][0] if rows else 0
        texts = dict(connection.execute("SELECT id, text FROM documents").fetchall())
        assert texts == expected(done), (done, texts)
        connection.execute("INSERT INTO documents_words (documents_words, rank) VALUES ('integrity-check', 1)")
    for word in {each for number in range(BATCHES) for text in batch(number).values() for each in (text or "").split()}:
        found = {hit.id for hit in search(path, word).hits}
        assert found == {key for key, text in texts.items() if word in text.split()}, word
    return done


def main(path: Path) -> None:
    deaths = 0
    for number in range(BATCHES):
        for step in count(1):
            is_through = child_got_through(path, step)
            done = check(path)
            if is_through or done > number:  # killed after the commit
                deaths += not is_through
                break
            deaths += 1
    assert done == BATCHES
    print(f"{deaths} deaths, {done} batches")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
