"""The log of a Delta table: its versions, files and offsets. Commits files and offsets in one step.

The end offset of each partition is an application transaction of the commit, `skylog:TOPIC-PARTITION`. A commit is
refused if another one has written an application transaction of the same name since the table was read. So of two jobs
that read the same topic, one wins, and the other has written nothing. The offsets are also in the commit's metadata,
under `skylog.offsets`, for time travel.

Commits that replace rows have one more, `skylog:upsert`, the fence, and are refused if there is any commit since the
version that their rows were computed from. Delta would refuse only some of those: not an upsert of the same new key,
and not after an optimization, whose files would keep the rows that were to be replaced.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import StructType

from skylog.model import TopicPartition
from skylog.pipeline.delta.data_files import WrittenFile, partition_text
from skylog.pipeline.delta.errors import ConcurrentWriterError, TableError
from skylog.pipeline.delta.schema import delta_schema, new_columns, spark_schema
from skylog.pipeline.delta.storage import Storage
from skylog.spark.reading.positions import offsets_from_json, offsets_json

Offsets = Mapping[TopicPartition, int]

OFFSETS: Final = "skylog.offsets"
LOG: Final = "_delta_log"
FILE_BYTES: Final = "delta.targetFileSize"
_APPLICATION: Final = "skylog:"
_FENCE: Final = f"{_APPLICATION}upsert"  # a partition has a hyphen
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")  # Delta's errors are for a terminal
_ARROW: Final = re.compile(r"\s*↳")
_UNREADABLE: Final = ("deletionVectors", "columnMapping")


class TableFile(NamedTuple):
    """A file of a version. `partition` has Python values, `smallest` and `largest` the bounds of columns.

    There are no bounds of times, dates and structs.
    """

    path: str
    size_bytes: int
    modified_ms: int
    rows: int | None
    partition: Mapping[str, Any]
    smallest: Mapping[str, Any]
    largest: Mapping[str, Any]

    @property
    def partition_text(self) -> dict[str, str | None]:
        return {name: partition_text(value) for name, value in self.partition.items()}


class TableVersion(NamedTuple):
    """An entry of the history. `offsets` are None for commits of others, such as a compaction."""

    version: int
    time_ms: int
    operation: str
    offsets: Offsets | None
    facts: Mapping[str, Any]


class TableLog:
    """A version of a table, for readers and for the job that writes the next one. Raises TableError."""

    def __init__(self, storage: Storage, table: DeltaTable) -> None:
        self.storage = storage
        self.table = table

    @classmethod
    def open(cls, storage: Storage) -> TableLog | None:
        """Open the newest version, or return None if there is no table. Raises TableError for anything else there."""
        if storage.is_local and Path(storage.uri).is_file():
            raise TableError(f"{storage.uri} is a file; use a new directory")
        found = cls._opened(storage)
        if found is None and _has_commit(storage):
            found = cls._opened(storage)  # another job has created it just now
        if found is None:
            _check_empty(storage)
        return found

    @classmethod
    def _opened(cls, storage: Storage) -> TableLog | None:
        with delta_errors(storage):
            try:
                return cls(storage, DeltaTable(storage.uri, storage_options=dict(storage.options)))
            except TableNotFoundError:
                return None

    @classmethod
    def open_or_create(
        cls, storage: Storage, schema: StructType, partition_by: Sequence[str] = (), *, file_bytes: int | None = None
    ) -> TableLog:
        """Open the table, or create an empty one with these columns. `file_bytes` is stored in it; see the property."""
        found = cls.open(storage)
        if found is not None:
            return found
        with delta_errors(storage):
            if storage.is_local:
                Path(storage.uri).mkdir(parents=True, exist_ok=True)
            table = DeltaTable.create(
                storage.uri,
                delta_schema(schema, storage.uri),
                mode="ignore",  # another job may create it at the same time
                partition_by=list(partition_by),
                configuration={} if file_bytes is None else {FILE_BYTES: str(file_bytes)},
                storage_options=dict(storage.options),
            )
        log = cls(storage, table)
        log.sync_since(log.version - 1)
        return log

    @property
    def version(self) -> int:
        return self.table.version()

    @property
    def schema(self) -> StructType:
        return spark_schema(self.table.schema())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.table.metadata().partition_columns)

    @property
    def table_id(self) -> str:
        return str(self.table.metadata().id)

    @property
    def file_bytes(self) -> int | None:
        """The size of large files, if the table's creator has stored it."""
        found = self.table.metadata().configuration.get(FILE_BYTES) or ""
        return int(found) if found.isdecimal() else None

    @property
    def fence(self) -> int | None:
        """A number that every commit that replaces rows changes. None if there was no such commit."""
        found: int | None = self.table.transaction_version(_FENCE)
        return found

    def refresh(self) -> None:
        """Read the commits since this version."""
        with delta_errors(self.storage):
            self.table.update_incremental()

    def travel(
        self, *, version: int | None = None, time_ms: int | None = None, offsets: Offsets | None = None
    ) -> TableLog:
        """Return an earlier version: by number, by time, or the last one that has no record from `offsets` on."""
        if offsets is not None:
            version = self._before(offsets)
        elif time_ms is not None:
            version = self._at(time_ms)
        if version is None or not 0 <= version <= self.version:
            raise TableError(f"{self.storage.uri}: version {version} does not exist; the newest is {self.version}")
        with delta_errors(self.storage):
            options = dict(self.storage.options)
            return TableLog(self.storage, DeltaTable(self.storage.uri, version=version, storage_options=options))

    def _at(self, time_ms: int) -> int:
        for each in self.history():
            if each.time_ms <= time_ms:
                return each.version
        raise TableError(f"{self.storage.uri}: there is no version from before {time_ms} ms")

    def _before(self, offsets: Offsets) -> int:
        """Return the last version without a record from `offsets` on.

        A commit names the partitions of its own job. What a version has of others is what an earlier one has named.
        """
        found, known = None, dict[TopicPartition, int]()
        for each in reversed(list(self.history())):
            known.update(each.offsets or {})
            if all(key in known and known[key] <= end for key, end in offsets.items()):
                found = each.version
        if found is not None:
            return found
        if missing := sorted(offsets.keys() - known.keys()):
            topics = ", ".join(sorted({key.topic for key in known})) or "no topic"
            raise TableError(f"{self.storage.uri}: no version has offsets of {missing[0]}; there are some of {topics}")
        raise TableError(f"{self.storage.uri}: no version ends before these offsets")

    def history(self, limit: int | None = None) -> Iterator[TableVersion]:
        """Yield the commits, newest first, as far back as the log reaches."""
        with delta_errors(self.storage):
            entries = self.table.history(limit)
        for entry in entries:
            text = entry.get(OFFSETS)
            offsets = None if text is None else offsets_from_json(json.loads(text))
            yield TableVersion(entry["version"], entry["timestamp"], entry["operation"], offsets, entry)

    def files(self) -> list[TableFile]:
        with delta_errors(self.storage):
            rows = _without_times(pa.table(self.table.get_add_actions())).to_pylist()
        return [
            TableFile(
                row["path"],
                row["size_bytes"],
                row["modification_time"],
                row["num_records"],
                row.get("partition") or {},
                row.get("min") or {},
                row.get("max") or {},
            )
            for row in rows
        ]

    def offsets(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return the end offsets of the partitions of `topics` that the table has."""
        found = {}
        for topic in topics:
            for number in count():
                key = TopicPartition(topic, number)
                end = self.table.transaction_version(f"{_APPLICATION}{key}")
                if end is None:
                    break
                found[key] = end
        return found

    def check_readable(self) -> None:
        """Raise TableError for a table with features that Parquet readers cannot handle."""
        features = set(self.table.protocol().reader_features or ()) & set(_UNREADABLE)
        if features:
            raise TableError(
                f"{self.storage.uri} uses {', '.join(sorted(features))}; read it with Spark's own Delta connector"
            )

    # -- writing

    def check_offsets(self, before: Offsets, after: Offsets) -> None:
        """Raise ConcurrentWriterError unless the table ends at `before` for every partition that changes."""
        stored = self.offsets({key.topic for key in after})
        for key, end in after.items():
            if end != before.get(key) and stored.get(key) != before.get(key):
                raise ConcurrentWriterError(
                    self.storage.uri,
                    f": it has {key} up to offset {stored.get(key) or 0}, but this job expects {before.get(key) or 0}",
                )

    def grow(self, rows: StructType) -> None:
        """Add the columns of `rows` that are missing. Raises TableSchemaError if a column would change its type."""
        added = new_columns(self.schema, rows, self.storage.uri)
        if added.fields:
            version = self.version
            with delta_errors(self.storage):
                self.table.alter.add_columns(list(delta_schema(added, self.storage.uri).fields))
            self.refresh()
            self.sync_since(version)

    def commit(
        self,
        added: Sequence[WrittenFile],
        removed: Sequence[TableFile] = (),
        *,
        before: Offsets,
        after: Offsets,
        facts: Mapping[str, Any] | None = None,
        is_fenced: bool = False,
    ) -> None:
        """Add and remove files, and store the offsets `after`, in one step. `facts` become metadata of the commit.

        Set `is_fenced` if the rows depend on those of this version. Raises ConcurrentWriterError if another job has
        written offsets of these partitions or removed these files, and if fenced, for every other commit since.
        """
        self.check_offsets(before, after)
        version = self.version
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(file.path, file.size_bytes, file.partition, file.written_ms, True, file.stats) for file in added
        ]
        actions += [
            RemoveAction(file.path, True, now_ms, size=file.size_bytes, partition_values=file.partition_text)
            for file in removed
        ]
        transactions = [
            Transaction(f"{_APPLICATION}{key}", end) for key, end in after.items() if before.get(key) != end
        ]
        if is_fenced:
            transactions.append(Transaction(_FENCE, self.version + 1))
        properties = CommitProperties(
            custom_metadata={OFFSETS: json.dumps(offsets_json(after)), **(facts or {})},
            app_transactions=transactions,
            max_commit_retries=0 if is_fenced else None,  # 0: to the next version or not at all
        )
        with delta_errors(self.storage):
            self.table.create_write_transaction(
                actions,
                "append",
                self.table.schema(),
                partition_by=list(self.partition_by),
                commit_properties=properties,
            )
        self.refresh()
        self.sync_since(version)

    def sync_since(self, version: int, *files: str) -> None:
        """Sync the commits since `version` to disk, and `files`, so that they survive a loss of power."""
        self.storage.sync(*files, *(f"{LOG}/{each:020}.json" for each in range(version + 1, self.version + 1)))


def _without_times(actions: pa.Table) -> pa.Table:
    """Return the files without bounds of times and dates, which may be in years that Python does not have."""
    for name in {"min", "max"} & set(actions.column_names):
        bounds = actions[name].combine_chunks()
        fields = zip(bounds.type, bounds.flatten(), strict=True)
        kept = {each.name: values for each, values in fields if not _is_time_or_nested(each.type)}
        actions = actions.drop_columns([name])
        if kept:
            actions = actions.append_column(name, pa.StructArray.from_arrays(list(kept.values()), names=list(kept)))
    return actions


def _is_time_or_nested(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or pa.types.is_nested(kind)


@contextmanager
def delta_errors(storage: Storage) -> Iterator[None]:
    """Convert errors of Delta to TableError."""
    try:
        yield
    except CommitFailedError as error:
        raise ConcurrentWriterError(storage.uri) from error
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        text = _ARROW.sub(":", _COLOUR.sub("", str(error)))
        raise TableError(f"{storage.uri}: {' '.join(text.split())}") from error


def _check_empty(storage: Storage) -> None:
    """Raise TableError if something else than a Delta table is there."""
    if not storage.is_local:
        return
    path = Path(storage.uri)
    if _is_of_old_form(path):
        raise TableError(
            f"{path} was written by an earlier version of skylog, whose tables are not Delta tables; run the job with "
            "another directory, which it fills from the beginning of the topic, and delete this one afterwards"
        )
    being_created = set() if _has_commit(storage) else {LOG}
    if path.is_dir() and any(not name.startswith(".") for name in set(os.listdir(path)) - being_created):
        raise TableError(f"{path} is not empty and not a Delta table; use a new directory")


def _has_commit(storage: Storage) -> bool:
    return storage.is_local and any(Path(storage.uri, LOG).glob("*.json"))


def _is_of_old_form(path: Path) -> bool:
    is_versioned = (path / "current").is_symlink() or (path / "versions").is_dir()
    return is_versioned or (path.parent / "_skylog" / path.name / "log").is_dir()
