"""`skylog log verify` on the index of aborted transactions: files of a real log, sound and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skylog.cli.log.log_check import FileDamage, LogReport, check_log
from skylog.cli.log.segment_files import find_logs
from skylog.storage.aborted_index import AbortedIndex, AbortedTransaction, read_aborted
from tests.storage.logs import Home, flush

ABORTED = [AbortedTransaction(2, at, at + 2, 0) for at in range(1, 41, 4) if (at - 1) // 4 % 3]
"""The transactions that `Home.open_with_transactions` aborts."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path, segment_bytes=400)
    log = home.open_with_transactions()
    flush(log)
    log.close()
    return home


def damage_in(path: Path) -> list[FileDamage]:
    report = LogReport()
    for log in find_logs([path]):
        check_log(log, report, lambda _: None)
    return report.damage


def victim(home: Home) -> Path:
    """An index with entries, of a segment that begins with the middle of a transaction or a transaction of its own."""
    return home.files(".txnindex")[1]


def rewrite(path: Path, change: Callable[[list[AbortedTransaction]], list[AbortedTransaction]], more: int = 0) -> None:
    """Write other entries, with a seal that fits."""
    entries, size_bytes = read_aborted(path)
    index = AbortedIndex(path)
    index.replace(change(entries))
    index.write(size_bytes + more)


def test_the_index_of_a_sound_log_has_no_problem(home: Home) -> None:
    found = [entry for path in home.files(".txnindex") for entry in read_aborted(path)[0]]
    assert found
    assert set(found) <= set(ABORTED)
    assert damage_in(home.directory) == []
    for segment in home.files(".log"):
        assert damage_in(segment) == []


@pytest.mark.parametrize(
    ("change", "more", "problem"),
    [
        (lambda entries: entries[1:], 0, "is missing"),
        (lambda entries: [entries[0]._replace(producer_id=3), *entries[1:]], 0, "but the log does not"),
        (lambda entries: [entries[0]._replace(last_offset=0), *entries[1:]], 0, "but the log does not"),
        (lambda entries: [entries[0]._replace(first_offset=entries[0].last_offset)], 0, "but its transaction at"),
        (lambda entries: [entries[0]._replace(first_offset=0)], 0, "in a transaction that has ended at"),
        (lambda entries: entries, 1, "the seal is for a log of"),
    ],
)
def test_a_wrong_entry_is_found(
    home: Home, change: Callable[[list[AbortedTransaction]], list[AbortedTransaction]], more: int, problem: str
) -> None:
    path = victim(home)
    rewrite(path, change, more)
    (found,) = damage_in(home.directory)
    assert found.file == path
    assert problem in found.problem
    assert "delete this file and the .index" in found.consequence


def test_a_missing_and_a_damaged_file_are_found(home: Home) -> None:
    path = victim(home)
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    assert [each.problem for each in damage_in(home.directory)] == ["the seal does not match the entries"]
    path.write_bytes(content[:40])
    assert "does not hold whole entries" in damage_in(home.directory)[0].problem
    path.unlink()
    (found,) = damage_in(home.directory)
    assert (found.file, found.position) == (path, 0)
    assert "of producer 2, aborted at offset" in found.problem


def test_doing_what_the_consequence_says_mends_the_index(home: Home) -> None:
    path = victim(home)
    before = path.read_bytes()
    rewrite(path, lambda entries: entries[1:])
    path.unlink(missing_ok=True)
    path.with_suffix(".index").unlink()
    log = home.open(clean=True)
    log.close()
    assert path.read_bytes() == before
    assert damage_in(home.directory) == []


def test_a_log_whose_first_segments_are_deleted_is_sound(home: Home) -> None:
    """The beginning of a transaction may be gone, while its marker and its entry are still there."""
    for segment in home.files(".log")[:3]:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            segment.with_suffix(suffix).unlink(missing_ok=True)
        assert damage_in(home.directory) == []
