"""Counts that survive their process: the file, its lock, and a crash at every step."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from skylog.audit.journal import (
    ACKNOWLEDGED,
    EXTENT_BYTES,
    FAILED,
    SENT,
    SIZE_BYTES,
    UNCERTAIN,
    Journal,
    JournalError,
    Slot,
)
from skylog.audit.report import Count

WINDOW_MS = 1000
Published = dict[str, Count]


def begin(directory: Path) -> Journal:
    return Journal.create(directory, "shop", WINDOW_MS)


def only_file(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def count(slot: Slot, messages: int, *, in_flight: int = 0) -> None:
    slot.cells[SENT] += messages + in_flight
    slot.cells[ACKNOWLEDGED] += messages
    slot.cells[SIZE_BYTES] += 10 * messages


def adopt(path: Path) -> Journal:
    journal = Journal.adopt(path, "shop")
    assert journal is not None
    return journal


def settle(journal: Journal) -> Published:
    """Publish all of a dead process's journal; return the content of the audit topic by id."""
    published = {}
    for slot in journal.slots():
        while slot.seal(settled=True):
            published[slot.report_id] = slot.sealed_count
            slot.confirm()
    return published


def test_counts_of_a_process_that_has_died_are_found_in_its_file(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    clicks, views = journal.take(), journal.take()
    clicks.assign("clicks", 5000, 6000)
    views.assign("views", 7000, 8000)
    count(clicks, 3, in_flight=2)
    clicks.cells[SENT] += 2
    clicks.cells[FAILED] += 1
    clicks.cells[UNCERTAIN] += 1
    count(views, 1)
    journal.release()
    published = settle(adopt(only_file(tmp_path)))
    assert sorted(published.values(), key=lambda row: row.start_ms) == [
        Count(5000, 6000, 3, 30, 3),
        Count(7000, 8000, 1, 10),
    ]


def test_the_journal_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    assert Journal.adopt(only_file(tmp_path), "shop") is None
    journal.release()
    heir = adopt(only_file(tmp_path))
    assert Journal.adopt(only_file(tmp_path), "shop") is None
    heir.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_journal_of_another_application_is_left_alone(tmp_path: Path) -> None:
    begin(tmp_path).release()
    assert Journal.adopt(only_file(tmp_path), "bank") is None
    adopt(only_file(tmp_path))


def test_a_crash_at_any_step_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """The file is copied at each step, as a killed process would leave it, and settled by a successor."""
    live, copies = tmp_path / "live", tmp_path / "copies"
    copies.mkdir()
    journal = begin(live)
    slot = journal.take()
    slot.assign("clicks", 5000, 6000)
    published: Published = {}
    truth = 0

    def crash_here() -> None:
        copy = copies / "copy.journal"
        shutil.copy(only_file(live), copy)
        heir = adopt(copy)
        found = {**published, **settle(heir)}
        heir.remove()
        assert sum(row.messages for row in found.values()) == truth
        assert sum(row.size_bytes for row in found.values()) == 10 * truth
        assert sum(row.uncertain for row in found.values()) == slot.in_flight

    for round_number in range(1, 4):
        count(slot, round_number, in_flight=1)
        truth += round_number
        crash_here()
        assert slot.seal()
        crash_here()
        count(slot, 1)  # while the report is in flight
        truth += 1
        crash_here()
        published[slot.report_id] = slot.sealed_count
        crash_here()
        slot.confirm()
        crash_here()
    assert len(published) == 3


def test_a_report_keeps_its_id_and_counts_until_it_is_confirmed(tmp_path: Path) -> None:
    slot = begin(tmp_path).take()
    slot.assign("clicks", 5000, 6000)
    assert not slot.seal()
    count(slot, 2)
    assert slot.seal()
    first = slot.report_id
    count(slot, 5)
    assert slot.seal()
    assert (slot.report_id, slot.sealed_count) == (first, Count(5000, 6000, 2, 20))
    slot.confirm()
    assert slot.seal()
    assert slot.report_id != first
    assert slot.sealed_count == Count(5000, 6000, 5, 50)


def test_a_slot_that_is_given_to_another_window_counts_from_zero(tmp_path: Path) -> None:
    slot = begin(tmp_path).take()
    slot.assign("a-topic-with-a-long-name", 5000, 6000)
    count(slot, 2)
    slot.seal()
    first = slot.report_id
    slot.confirm()
    slot.assign("views", 9000, 10_000)
    assert not slot.seal(settled=True)
    count(slot, 1)
    slot.seal()
    assert slot.sealed_count == Count(9000, 10_000, 1, 10)
    assert slot.report_id != first
    slot.restore(WINDOW_MS)
    assert (slot.topic, slot.start_ms, slot.end_ms) == ("views", 9000, 10_000)


def test_the_file_grows_with_its_slots(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    for number in range(300):
        slot = journal.take()
        slot.assign(f"topic-{number}", 5000, 6000)
        count(slot, number)
    journal.release()
    assert only_file(tmp_path).stat().st_size == 3 * EXTENT_BYTES
    slots = adopt(only_file(tmp_path)).slots()
    assert [(slot.topic, slot.cells[ACKNOWLEDGED]) for slot in slots] == [(f"topic-{n}", n) for n in range(300)]
    assert len({slot.name for slot in slots}) == 300


def test_a_forked_child_does_not_keep_the_journal_of_its_dead_parent(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    journal.take()
    from_child, in_child = os.pipe()
    child = os.fork()
    if not child:
        os.write(in_child, b"!")
        signal.pause()
    try:
        assert os.read(from_child, 1) == b"!"
        assert Journal.adopt(only_file(tmp_path), "shop") is None, "the parent lives"
        journal.release()
        adopt(only_file(tmp_path))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(from_child)
        os.close(in_child)


@pytest.mark.parametrize(
    "content",
    [b"not a journal" * 1000, b"short", b"SKYAUDIT" * 8192, b"\0\0\0\0\0\0\0\1" * 8192],
    ids=["text", "short", "magic of another byte order", "numbers"],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.journal"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"x\.journal"):
        Journal.adopt(path, "shop")
    assert path.read_bytes() == content


def test_a_damaged_slot_is_named(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    slot = journal.take()
    slot.assign("clicks", 0, 1000)
    slot.cells[13] = 1 << 40
    journal.release()
    with pytest.raises(JournalError, match="topic of 1099511627776 bytes"):
        adopt(only_file(tmp_path)).slots()


def test_where_no_file_can_be_made_counts_are_kept_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    journal = begin(tmp_path / "file" / "below")
    assert "kept in memory" in caplog.text
    slots = [journal.take() for _ in range(200)]
    for slot in slots:
        slot.assign("clicks", 0, 1000)
        count(slot, 1)
        assert slot.seal()
    assert len({slot.report_id for slot in slots}) == 200
    journal.remove()


def test_with_a_full_disk_counting_continues_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = begin(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (EXTENT_BYTES, hard))
    try:
        with caplog.at_level(logging.WARNING):
            slots = [journal.take() for _ in range(200)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "lost if this process is killed" in caplog.text
    for slot in slots:
        slot.assign("clicks", 0, 1000)
        count(slot, 1)
        assert slot.seal()
    assert only_file(tmp_path).stat().st_size == EXTENT_BYTES
