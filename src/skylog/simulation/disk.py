"""The disk of a host: a directory of files, of which only what was synced survives a power cut.

The files are real, in a directory in memory (`/dev/shm` where there is one). The calls that sync a file or a directory
note what it has at that moment. A power cut builds the directory again: names as of the last sync of their directory or
as they are, and of each file what was synced and any part of what was written since, in pages. A process that is killed
leaves the files as they are, as the page cache does.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from random import Random
from typing import Final

from skylog.records import LOG_OVERHEAD_BYTES
from skylog.testing.files import DiskFaults

PAGE_BYTES: Final = 512

Names = dict[str, int]
"""The inodes of a directory by name."""


class Disk:
    """The files of one host below `path`. `faults` has errors of reads, writes and syncs of logs."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._boots = 0
        self.faults = DiskFaults()
        self._contents: dict[int, bytes] = {}  # what is on disk of a file, by inode
        self._names: dict[int, Names] = {}  # what is on disk of a directory
        self.path.mkdir(parents=True)
        self.note_sync(self.path)

    @property
    def path(self) -> Path:
        """The root. It is another directory after each power cut, so that nothing of before can write to it."""
        return self._base / str(self._boots)

    def note_sync(self, path: Path | int) -> None:
        """Note that a file or the names in a directory, given by path or descriptor, are on disk."""
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as entries:
                self._names[status.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:  # a descriptor may be open for writing only
            source = Path(f"/proc/self/fd/{path}") if isinstance(path, int) else path
            self._contents[status.st_ino] = source.read_bytes()

    def release_lock(self) -> None:
        """Let another process use the directory: the kernel drops the lock of a process that has ended."""
        (self.path / "lock").unlink(missing_ok=True)

    def cut_power(self, rng: Random) -> int:
        """Lose what was not synced, or a part of it. Return the number of bytes that are gone."""
        before, self._boots = self.path, self._boots + 1
        has_lost_names = rng.random() < 0.5
        self.faults = DiskFaults()
        gone = self._rebuild(before, before.stat().st_ino, self.path, rng, has_lost_names)
        self._contents, self._names = {}, {}
        self._note_all(self.path)
        return gone

    def _rebuild(self, before: Path, directory: int, after: Path, rng: Random, has_lost_names: bool) -> int:
        """Build a directory again, given its inode. It may be there no more, if its removal was not synced."""
        after.mkdir(parents=True)
        present = {entry.name: entry.inode() for entry in os.scandir(before)} if before.is_dir() else {}
        by_inode = {inode: before / name for name, inode in present.items()}
        names = self._names.get(directory, {}) if has_lost_names else present
        gone = 0
        for name, inode in sorted(names.items()):
            source = by_inode.get(inode, after / name)
            if source.is_dir() or inode in self._names:
                gone += self._rebuild(source, inode, after / name, rng, has_lost_names)
            elif name != "lock":
                written = source.read_bytes() if inode in by_inode else b""
                kept = torn(self._contents.get(inode, b""), written, rng)
                (after / name).write_bytes(kept)
                gone += max(len(written) - len(kept), 0)
        return gone

    def _note_all(self, directory: Path) -> None:
        for path in sorted(directory.rglob("*")):
            self.note_sync(path)
        self.note_sync(directory)

    def flip_bit(self, rng: Random) -> str | None:
        """Damage one bit of a log, on disk and in the cache. Return where, or None if all logs are empty.

        Base offsets are spared. No CRC covers them, so nothing but the scrub finds the damage, as in Kafka.
        """
        paths = [path for path in sorted(self.path.glob("*/*.log")) if path.stat().st_size > 0]
        if not paths:
            return None
        path = rng.choice(paths)
        content = bytearray(path.read_bytes())
        spared = base_offset_bytes(content)
        position = rng.randrange(len(content))
        while position in spared:
            position = rng.randrange(len(content))
        content[position] ^= 1 << rng.randrange(8)
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(content[position : position + 1])
        inode = path.stat().st_ino
        on_disk = bytearray(self._contents.get(inode, b""))
        if position < len(on_disk):
            on_disk[position] = content[position]
            self._contents[inode] = bytes(on_disk)
        return f"{path.parent.name}/{path.name} at byte {position}"


def base_offset_bytes(log: bytes | bytearray) -> set[int]:
    """Return the positions of the base offsets of a log file's batches, up to the first damaged length."""
    found: set[int] = set()
    start = 0
    while start + LOG_OVERHEAD_BYTES < len(log):
        found.update(range(start, start + 8))
        start += LOG_OVERHEAD_BYTES + max(int.from_bytes(log[start + 8 : start + 12]), 1)
    return found


def torn(synced: bytes, written: bytes, rng: Random) -> bytes:
    """Return what a disk may have of a file after a power cut, given what was synced last and what it had."""
    choice = rng.random()
    if synced == written or choice < 0.2:
        return written
    if choice < 0.5:
        return synced
    length = rng.randint(min(len(synced), len(written)), max(len(synced), len(written)))
    pages = bytearray(length)  # a page that was never written is zero
    for start in range(0, length, PAGE_BYTES):
        source = written if rng.random() < 0.6 else synced
        page = source[start : min(start + PAGE_BYTES, length)]
        pages[start : start + len(page)] = page
    return bytes(pages)
