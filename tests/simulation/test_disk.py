"""A simulated disk: what was synced survives a power cut, anything else may be gone or torn."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from skylog.durable_files import sync_directory, sync_file
from skylog.simulation import seams
from skylog.simulation.disk import PAGE_BYTES, Disk, torn
from skylog.storage.files import LogFile
from tests.storage.logs import a_batch


def write(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def test_what_was_synced_survives_every_power_cut(tmp_path: Path) -> None:
    for number in range(20):
        disk = Disk(tmp_path / str(number))
        path = disk.path / "a.log"
        write(path, b"synced")
        disk.note_sync(path)
        disk.note_sync(disk.path)
        write(path, b" and not")
        disk.cut_power(Random(number))
        assert (disk.path / "a.log").read_bytes().startswith(b"synced")


def test_a_directory_whose_removal_was_not_synced_is_a_directory_again(tmp_path: Path) -> None:
    for number in range(20):
        disk = Disk(tmp_path / str(number))
        (disk.path / "t-0").mkdir()
        write(disk.path / "t-0" / "a.log", b"synced")
        for each in (disk.path / "t-0" / "a.log", disk.path / "t-0", disk.path):
            disk.note_sync(each)
        (disk.path / "t-0").rename(disk.path / "t-0.removed")
        shutil.rmtree(disk.path / "t-0.removed")
        disk.cut_power(Random(number))
        if (disk.path / "t-0").exists():
            assert os.listdir(disk.path / "t-0") == ["a.log"]


def test_every_sync_of_the_code_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path / "disk")
    monkeypatch.setattr(seams, "current_process", lambda: SimpleNamespace(host="host"))
    patches = seams.Patches()
    seams._replace_syncs(patches, {"host": disk})
    try:
        log = LogFile(disk.path / "a.log", create=True)
        log.append(b"synced")
        log.sync()
        write(disk.path / "b", b"synced")
        sync_file(disk.path / "b")
        sync_directory(disk.path)
    finally:
        patches.undo()
    for number in range(20):
        disk.cut_power(Random(number))
        assert [(disk.path / name).read_bytes() for name in ("a.log", "b")] == [b"synced"] * 2


def test_what_was_not_synced_is_sometimes_gone(tmp_path: Path) -> None:
    lengths = set()
    for number in range(20):
        disk = Disk(tmp_path / str(number))
        path = disk.path / "a.log"
        write(path, b"synced")
        disk.note_sync(path)
        disk.note_sync(disk.path)
        write(path, b" and not")
        disk.cut_power(Random(number))
        lengths.add(len((disk.path / "a.log").read_bytes()))
    assert {len(b"synced"), len(b"synced and not")} < lengths


def test_a_name_that_was_not_synced_is_sometimes_gone(tmp_path: Path) -> None:
    found = set()
    for number in range(20):
        disk = Disk(tmp_path / str(number))
        os.mkdir(disk.path / "t-0")
        disk.cut_power(Random(number))
        found.add((disk.path / "t-0").is_dir())
    assert found == {True, False}


def test_the_disk_after_a_power_cut_is_another_directory(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk")
    before = disk.path
    disk.cut_power(Random(1))
    assert disk.path != before
    assert disk.path.is_dir()


def test_torn_pages_are_old_new_or_zero() -> None:
    old, new = b"o" * 4 * PAGE_BYTES, b"n" * 6 * PAGE_BYTES
    for number in range(50):
        kept = torn(old, new, Random(number))
        pages = {kept[start : start + PAGE_BYTES][:1] for start in range(0, len(kept), PAGE_BYTES)}
        assert pages <= {b"o", b"n", b"\0"}
        assert len(old) <= len(kept) <= len(new)


def test_a_flipped_bit_is_on_disk_for_good(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk")
    assert disk.flip_bit(Random(1)) is None
    folder = disk.path / "t-0"
    folder.mkdir()
    path = folder / "0.log"
    write(path, b"synced")
    disk.note_sync(path)
    disk.note_sync(folder)
    disk.note_sync(disk.path)
    assert disk.flip_bit(Random(1)) is not None
    damaged = path.read_bytes()
    assert damaged != b"synced"
    disk.cut_power(Random(1))
    assert (disk.path / "t-0" / "0.log").read_bytes() == damaged


def test_a_flipped_bit_spares_what_no_checksum_covers(tmp_path: Path) -> None:
    batches = b"".join(a_batch(size_bytes=1) for _ in range(3))
    starts = range(0, len(batches), len(batches) // 3)
    for number in range(50):
        disk = Disk(tmp_path / str(number))
        (disk.path / "t-0").mkdir()
        path = disk.path / "t-0" / "0.log"
        write(path, batches)
        disk.flip_bit(Random(number))
        damaged = path.read_bytes()
        assert damaged != batches
        assert all(damaged[start : start + 8] == batches[start : start + 8] for start in starts)
