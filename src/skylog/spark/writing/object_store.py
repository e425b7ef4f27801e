"""Staged files in an object store, for executors that share no disk with the driver.

A task writes its file to its own disk and uploads it when it is complete. The driver downloads the files before it
sends them. This is for batch writes and for streams with transactions: without them, a stream locks files.

Uses the file systems of pyarrow, so no jar is needed: S3 (also `s3a:`), Google Cloud Storage, Azure, HDFS. Credentials
come from the environment of the driver and of the executors, as each of them documents.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from skylog.spark.errors import OptionError
from skylog.spark.writing.staging import StagedFile, is_staged, remove_files

_ALIASES: Final = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss"}
_COPY_BYTES: Final = 8 << 20


class ObjectStore:
    """A directory in an object store. `location` is the value of stagingLocation, and `folder` is below it.

    Raises OptionError if pyarrow has no file system for it.
    """

    def __init__(self, location: str, folder: str = "") -> None:
        self._location = location
        self._files, path = _file_system(location)
        self._path = "/".join(filter(None, (path.rstrip("/"), folder)))

    def upload(self, file: StagedFile) -> StagedFile:
        """Move a file of this machine to the store."""
        if not file.path:
            return file
        target = f"{self._path}/{Path(file.path).name}"
        try:
            with Path(file.path).open("rb") as source, self._files.open_output_stream(target) as stream:
                while data := source.read(_COPY_BYTES):
                    stream.write(data)
        except OSError as error:
            raise OptionError(f"cannot write to stagingLocation={self._location}: {error}") from error
        finally:
            remove_files([file.path])
        return replace(file, path=target)

    @contextmanager
    def downloaded(self, files: Sequence[StagedFile]) -> Iterator[list[StagedFile]]:
        """Yield copies of the files on this machine. They are deleted at the end."""
        with tempfile.TemporaryDirectory(prefix="skylog-sink-") as directory:
            yield [self._download(file, Path(directory)) for file in files]

    def remove(self, files: Sequence[StagedFile]) -> None:
        for file in files:
            if file.path:
                self._files.delete_file(file.path)

    def remove_staged(self, last_batch_id: int) -> None:
        """Delete the files of all attempts of micro-batches up to this one, those of killed processes too."""
        from pyarrow import fs

        for found in self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True)):
            if is_staged(found.base_name, last_batch_id):
                self._files.delete_file(found.path)

    def _download(self, file: StagedFile, directory: Path) -> StagedFile:
        if not file.path:
            return file
        target = directory / Path(file.path).name
        try:
            with self._files.open_input_stream(file.path) as stream, target.open("xb") as copy:
                while data := stream.read(_COPY_BYTES):
                    copy.write(data)
        except OSError as error:
            raise OptionError(
                f"cannot read {file.path} in stagingLocation={self._location}, from a task on {file.host}: {error}"
            ) from error
        return replace(file, path=str(target))


def _file_system(location: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    scheme, _, rest = location.partition(":")
    try:
        found, path = fs.FileSystem.from_uri(f"{_ALIASES.get(scheme.lower(), scheme)}:{rest}")
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        raise OptionError(
            f"stagingLocation={location}: expected a directory that the driver and all executors share, or the URI of "
            f"an object store ({error})"
        ) from error
    return found, path
