"""`skylog log`: real files of a real broker, sound and damaged."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skylog.cli.log.segment_files import ReadOnlyFile, find_logs
from skylog.errors import SkylogError
from skylog.records import HEADER_BYTES

from .conftest import Skylog, running_broker

CONFIGS = {"segment_bytes": "4096", "index_interval_bytes": "1"}
# Twelve batches of one message each make three or four segments.
MESSAGES = [{"key": f"k{number}", "value": "v" * 900, "timestamp": 1_000_000 + number} for number in range(12)]
ONE_PER_BATCH = {"batch.num.messages": 1, "enable.idempotence": True}


@pytest.fixture(scope="module")
def original(skylog: Skylog, data_dir: Path) -> Path:
    """The directory of a partition of the running broker."""
    skylog.create("logged", 1, **CONFIGS)
    skylog.send("logged", *MESSAGES, **ONE_PER_BATCH)
    return data_dir / "logged-0"


@pytest.fixture
def directory(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage, in a data directory without checkpoints, as after a crash."""
    passing = shutil.ignore_patterns("*.snapshot")  # the broker replaces them at any time
    return Path(shutil.copytree(original, tmp_path / "data" / original.name, ignore=passing))


class Place(NamedTuple):
    path: Path
    position: int


def places(directory: Path) -> list[Place]:
    """The position of each batch; there is one per offset."""
    [log] = find_logs([directory])
    return [Place(segment.path, position) for segment in log.segments for _, position, _ in segment.batches()]


def verify(skylog: Skylog, *paths: Path, code: int = 1) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(skylog("log", "verify", "--json", *paths, code=code).stdout)
    return report


def only_damage(skylog: Skylog, path: Path) -> dict[str, Any]:
    [damage] = verify(skylog, path)["damage"]
    assert isinstance(damage, dict)
    return damage


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_dump_lists_every_batch_of_every_segment(skylog: Skylog, original: Path) -> None:
    listed = skylog.json_lines("log", "dump", "--json", original)
    assert [each["base_offset"] for each in listed] == list(range(12))
    assert len({each["file"] for each in listed}) > 2
    first = listed[0]
    assert (first["position"], first["count"], first["last_offset"], first["codec"]) == (0, 1, 0, "none")
    assert first["max_timestamp"] == "1970-01-01T00:16:40.000Z"
    assert first["producer_id"] >= 0
    assert [each["base_sequence"] for each in listed] == list(range(12))
    assert first["size_bytes"] == listed[1]["position"]


def test_dump_shows_records_and_takes_a_single_file(skylog: Skylog, original: Path) -> None:
    segment = sorted(original.glob("*.log"))[1]
    [*_, last] = skylog.json_lines("log", "dump", "--json", "--records", segment)
    assert last["file"] == str(segment)
    [record] = last["records"]
    assert (record["key"], record["value"], record["offset"]) == (
        f"k{last['base_offset']}",
        "v" * 900,
        last["base_offset"],
    )


def test_dump_for_people_has_a_line_per_batch(skylog: Skylog, original: Path) -> None:
    lines = skylog("log", "dump", original, "--records").stdout.splitlines()
    assert lines[0] == str(original / f"{0:020d}.log")
    assert lines[1].split()[:4] == ["BASE", "OFFSET", "LAST", "OFFSET"]
    assert lines[2].split()[:2] == ["0", "0"]
    assert "key=k0" in lines[3]


def test_a_live_data_directory_is_sound_and_untouched(skylog: Skylog, original: Path, data_dir: Path) -> None:
    before = file_states(original)
    report = verify(skylog, data_dir, code=0)
    assert report["sound"]
    assert report["records"] >= 12
    after = file_states(original)
    assert before.items() <= after.items()
    assert {path.suffix for path in after.keys() - before.keys()} <= {".snapshot"}  # the broker's own, meanwhile


def file_states(directory: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.iterdir()}


def test_a_file_is_opened_so_that_nothing_can_be_written(directory: Path) -> None:
    file = ReadOnlyFile(directory / f"{0:020d}.log")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append(b"x")
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(0)


def test_a_flipped_bit_in_a_batch_is_found_with_its_position_and_the_effect_of_a_restart(
    skylog: Skylog, directory: Path
) -> None:
    victim = places(directory)[5]
    flip(victim.path, victim.position + HEADER_BYTES + 100)
    damage = only_damage(skylog, directory)
    assert (damage["file"], damage["position"]) == (str(victim.path), victim.position)
    assert "CRC" in damage["problem"]
    assert (
        f"a restart truncates the file at byte {victim.position}: offset 5 and all later ones" in damage["consequence"]
    )


def test_the_listing_of_a_damaged_log_ends_with_an_error_at_the_first_bad_byte(skylog: Skylog, directory: Path) -> None:
    victim = places(directory)[2]
    flip(victim.path, victim.position + HEADER_BYTES + 100)
    dumped = skylog("log", "dump", "--json", directory, code=1)
    assert [json.loads(line)["base_offset"] for line in dumped.stdout.splitlines()] == [0, 1]
    assert f"{victim.path}: byte {victim.position}: batch has CRC" in dumped.stderr


def test_a_truncated_tail_is_found_with_its_position(skylog: Skylog, directory: Path) -> None:
    last = places(directory)[-1]
    os.truncate(last.path, last.position + 70)
    damage = only_damage(skylog, directory)
    assert (damage["file"], damage["position"]) == (str(last.path), last.position)
    assert "70 are available" in damage["problem"]
    assert "offset 11 and all later ones are lost" in damage["consequence"]


def test_a_wrong_offset_is_found(skylog: Skylog, directory: Path) -> None:
    victim = places(directory)[1]
    data = bytearray(victim.path.read_bytes())
    data[victim.position : victim.position + 8] = (0).to_bytes(8, "big")
    victim.path.write_bytes(data)
    damage = only_damage(skylog, directory)
    assert damage["position"] == victim.position
    assert "expected 1" in damage["problem"]


def test_a_missing_segment_is_found(skylog: Skylog, directory: Path) -> None:
    segments = sorted(directory.glob("*.log"))
    segments[1].unlink()
    damage = only_damage(skylog, directory)
    assert damage["file"] == str(segments[2])
    assert f"the previous one ends at {int(segments[1].stem)}" in damage["problem"]
    assert "deletes this segment" in damage["consequence"]


@pytest.mark.parametrize(
    ("suffix", "byte", "words"),
    [
        (".index", 0, "where no batch starts"),
        (".index", 4, "places offset"),
        (".timeindex", 0, "has timestamp"),
    ],
)
def test_a_wrong_index_entry_is_found_with_its_position(
    skylog: Skylog, directory: Path, suffix: str, byte: int, words: str
) -> None:
    path = sorted(directory.glob("*.log"))[1].with_suffix(suffix)
    data = bytearray(path.read_bytes())
    data[byte] ^= 0x01
    path.write_bytes(data)
    damage = only_damage(skylog, directory)
    assert (damage["file"], damage["position"]) == (str(path), 0)
    assert words in damage["problem"]
    assert "rebuilds the indexes" in damage["consequence"]


def test_an_index_that_ends_in_the_middle_of_an_entry_is_found(skylog: Skylog, directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[0].with_suffix(".index")
    os.truncate(path, 11)
    damage = only_damage(skylog, directory)
    assert (damage["file"], damage["position"], damage["problem"]) == (
        str(path),
        8,
        "3 trailing bytes are too few for an entry",
    )


def test_a_missing_index_of_a_closed_segment_is_found(skylog: Skylog, directory: Path) -> None:
    path = sorted(directory.glob("*.index"))[0]
    path.unlink()
    damage = only_damage(skylog, directory)
    assert (damage["file"], damage["problem"]) == (str(path), "the file is missing")


def test_after_a_clean_stop_damage_is_skipped_and_not_truncated(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with running_broker(data_dir) as address:
        skylog = Skylog(address)
        skylog.create("stopped", 1, **CONFIGS)
        skylog.send("stopped", *MESSAGES, **ONE_PER_BATCH)
    assert verify(skylog, data_dir, code=0)["records"] == 12
    victim = places(data_dir / "stopped-0")[5]
    flip(victim.path, victim.position + HEADER_BYTES + 100)
    damage = only_damage(skylog, data_dir)
    assert damage["position"] == victim.position
    assert "the log was closed cleanly" in damage["consequence"]
    assert "does not serve offset 5 (CORRUPT_MESSAGE)" in damage["consequence"]


def test_verify_prints_text_by_default(skylog: Skylog, directory: Path) -> None:
    assert skylog("log", "verify", directory).stdout.endswith("all sound\n")
    flip(directory / f"{0:020d}.log", 100)
    printed = skylog("log", "verify", directory, code=1).stdout
    assert f"{directory / f'{0:020d}.log'}: byte 0: " in printed
    assert printed.endswith("1 damaged\n")


def test_a_path_that_does_not_exist_is_named(skylog: Skylog, tmp_path: Path) -> None:
    assert f"{tmp_path / 'x'} does not exist" in skylog("log", "verify", tmp_path / "x", code=1).stderr


@pytest.mark.parametrize(("name", "words"), [(".", "no logs found"), ("x.index", "is not a segment")])
def test_a_path_without_a_log_is_rejected(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "x.index").touch()
    with pytest.raises(SkylogError, match=words):
        find_logs([tmp_path / name])
