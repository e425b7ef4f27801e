"""Captures the changes of tables: from a connection to PostgreSQL to the log, until it fails or is stopped.

Nothing is repaired in the middle: after any failure, everything is opened again from the position in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from threading import Event
from typing import Final, NamedTuple

from skylog.capture.avro_envelope import AvroDebezium
from skylog.capture.avro_format import AvroFormat
from skylog.capture.changes import Changes
from skylog.capture.chunks import TableReader, current_table, missing_values
from skylog.capture.envelope import Debezium, Envelope, Plain
from skylog.capture.merge import SnapshotMerge
from skylog.capture.pgoutput import format_lsn
from skylog.capture.plan import Limits, Plan
from skylog.capture.position import Position, Progress
from skylog.capture.replication import (
    HEADER,
    KEEPALIVE,
    PublicationDroppedError,
    ReplicationStream,
    keepalive,
    wal_place,
)
from skylog.capture.sink import Sink, positions_topic
from skylog.capture.snapshot import Snapshot
from skylog.capture.source import Source, SourceTable
from skylog.capture.table import CaptureError, RowsOf, Table, TableChangedError, Tables, json_rows, topic_of
from skylog.client.errors import TransactionAbortedError
from skylog.errors import ConfigError, SkylogError
from skylog.model import check_topic_name
from skylog.schemas.registry_client import RegistryClient

logger = logging.getLogger(__name__)

WAIT_S: Final = 0.2
SNAPSHOT_WAIT_S: Final = 0.01
CONFIRM_EVERY_S: Final = 1.0
SLOT_WAIT_S: Final = 2.0
REPORT_EVERY_S: Final = 1.0
POSTGRES_EPOCH_S: Final = 946_684_800
_BURST: Final = 500  # messages between two looks at the clock


class FormatName(StrEnum):
    """How keys and values are encoded."""

    JSON = "json"
    AVRO = "avro"


class EnvelopeName(StrEnum):
    """The form of a value."""

    PLAIN = "plain"
    DEBEZIUM = "debezium"


@dataclass(frozen=True)
class CaptureSettings:
    """What to capture, and where to."""

    url: str
    tables: Sequence[str]
    prefix: str
    bootstrap: str | None = None
    envelope: EnvelopeName = EnvelopeName.DEBEZIUM
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    chunk_rows: int = 10_000
    limits: Limits = field(default_factory=Limits)
    format: FormatName = FormatName.JSON
    registry: str | None = None  # the address of the schema registry, for Avro


class SlotBusyError(SkylogError):
    """The slot is in use by another capture."""


class CaptureStatus(NamedTuple):
    """How far a capture is. `rows` and `failures` count since the start of the process."""

    rows: int = 0
    lag_bytes: int = 0
    lag_s: float = 0.0
    slot_bytes: int = 0
    is_snapshot_done: bool = False
    failures: int = 0
    is_running: bool = True  # False: it failed, and is about to begin again
    last_error: str | None = None


Report = Callable[[CaptureStatus], None]


class CaptureRun:
    """One run of a capture: from its opening to its first failure."""

    def __init__(self, settings: CaptureSettings, resources: ExitStack) -> None:
        self._settings = settings
        topics = [topic_of(settings.prefix, name) for name in settings.tables]
        for topic in (positions_topic(settings.prefix), *topics):
            check_topic_name(topic)
        tables = Tables(settings.prefix, _rows_of(settings, resources))
        self.source = Source(settings.url, settings.prefix)
        resources.callback(self.source.close)
        self.source.check()
        self._wait_for_slot()
        captured = self.source.tables(settings.tables)
        self._sink = Sink(settings.bootstrap, settings.prefix)
        resources.callback(self._sink.close)
        self._sink.prepare(topics, settings.partitions, settings.configs)
        position = self._without_unpublished(self._sink.position())
        self.source.publish(settings.tables)
        topic_ids = self._sink.new_topic_ids(topics)
        progress = {
            name: self._progress_of(name, table, topic_ids[topic_of(settings.prefix, name)], position)
            for name, table in captured.items()
        }
        self._new_tables = [
            current_table(self.source, tables, name, each.key) for name, each in progress.items() if not each.is_begun
        ]
        self._position = replace(self._first_position(position), tables=progress)
        self._plan = Plan(self._position.lsn, self._position.part, settings.limits)
        merge = SnapshotMerge()
        keys = {name: table.key for name, table in captured.items()}
        reader = TableReader(settings.url, tables, keys, settings.chunk_rows)
        resources.callback(reader.close)
        self._snapshot = Snapshot(self.source, reader, merge, self._position.tables)
        self._envelope = _envelope(settings, self.source.database)
        self.changes = Changes(
            tables,
            progress,
            self._envelope,
            self._plan,
            merge,
            missing_values(self.source),
            self.source.base_types,
        )
        self._reached = 0  # how far the stream is
        self._confirmed_s = self._reported_s = 0.0
        self._stream = ReplicationStream(settings.url, self.source.name, self.source.name, self._position.lsn)
        resources.callback(self._stream.close)

    def run(self, stop: Event, report: Report, *, once: bool = False) -> None:
        """Capture until `stop` is set, or with `once` to where the database is now.

        Raises psycopg.Error and SkylogError.
        """
        try:
            self._run(stop, report, once=once)
        except TableChangedError as error:
            self._sink.abort()
            self._sink.commit(replace(self._position, tables={**self._position.tables, error.table: Progress()}))
            raise
        except PublicationDroppedError:
            self._sink.abort()
            tables = dict.fromkeys(self._position.tables, Progress())
            self._sink.commit(Position(self._position.system, self.source.end_lsn(), tables=tables))
            raise
        except TransactionAbortedError:
            self._check_topics()  # one that was deleted is the cause
            raise
        self._sink.abort()  # part of a transaction of the database: readers do not wait for its end

    def _run(self, stop: Event, report: Report, *, once: bool) -> None:
        self._begin_tables()
        goal = self.source.end_lsn() if once else None
        while not stop.is_set():
            is_idle = self._take_burst()
            self._sink.send(self.changes.records)
            if self._plan.is_due(self._sink.records, self._sink.open_s, is_idle=is_idle):
                self._commit()
            if self._plan.is_between:
                self._advance_snapshot()
            if is_idle or time.monotonic() - self._confirmed_s >= CONFIRM_EVERY_S:
                self._confirm(wants_reply=goal is not None)
                self._report(report)
            if goal is not None and self._is_done(goal):
                break
            if is_idle:
                self._stream.wait(WAIT_S if self._snapshot.is_done else SNAPSHOT_WAIT_S)

    def _wait_for_slot(self) -> None:
        """Raise SlotBusyError if the slot is in use for longer than a capture that has just ended needs to let it go.

        Before the log is opened: that would end the other capture.
        """
        deadline = time.monotonic() + SLOT_WAIT_S
        while (slot := self.source.slot()) is not None and slot.is_active:
            if time.monotonic() > deadline:
                raise SlotBusyError(f"another capture {self._settings.prefix} is running: this one waits for its end")
            time.sleep(SLOT_WAIT_S / 20)

    def _without_unpublished(self, position: Position | None) -> Position | None:
        """Return the position, in which tables that somebody took out of the publication are to be read anew.

        That is stored before they are published again: afterwards nobody would know that changes are missing.
        """
        lost = set() if position is None else position.tables.keys() - self.source.published()
        if position is None or not lost:
            return position
        tables = {name: Progress() if name in lost else each for name, each in position.tables.items()}
        position = replace(position, tables=tables)
        self._sink.commit(position)
        return position

    def _progress_of(self, name: str, table: SourceTable, topic_id: str, position: Position | None) -> Progress:
        """Return how far the snapshot of a table is. It begins anew if the table, or its topic, is another one by now.

        A topic that was deleted lacks the rows that it had.
        """
        known = None if position is None else position.tables.get(name)
        new = Progress(oid=table.oid, key=table.key, key_types=table.key_types, topic_id=topic_id)
        if known is None:
            return new
        is_same_topic = known.topic_id in ("", topic_id)
        if (known.oid, known.key, known.key_types) == table and is_same_topic:
            return known._replace(topic_id=topic_id)
        if not is_same_topic and known.is_begun:
            topic = topic_of(self._settings.prefix, name)
            logger.warning("the topic %s was deleted, and its rows with it: the table %s is read anew", topic, name)
        return new._replace(since=self.source.end_lsn())

    def _first_position(self, position: Position | None) -> Position:
        """Return where to begin: the position in the log, or that of a new slot. Raises CaptureError."""
        prefix, name = self._settings.prefix, self.source.name
        slot, system = self.source.slot(), self.source.system()
        again = f"skylog capture drop URL --prefix {prefix}, and start again: that reads the tables anew"
        if position is not None and position.system != system:
            raise CaptureError(f"the capture {prefix} is of another database: use another --prefix, or {again}")
        if slot is not None and slot.is_lost:
            raise CaptureError(
                f"the slot {name} fell so far behind that the server has removed its changes: raise its "
                f"max_slot_wal_keep_size, then {again}"
            )
        if position is None:
            lsn = self.source.create_slot() if slot is None else slot.confirmed_lsn
            position = Position(system, lsn)
        elif slot is None:
            lost = format_lsn(position.lsn)
            raise CaptureError(f"the slot {name} is gone, and the changes since {lost} with it: {again}")
        elif position.lsn > slot.end_lsn:
            raise CaptureError(
                f"the database is at {format_lsn(slot.end_lsn)}, before the position {format_lsn(position.lsn)} of the "
                f"capture {prefix}, so it was restored from a backup: {again}"
            )
        return position

    def _begin_tables(self) -> None:
        """Remove the rows that an earlier capture has left in the topics of new tables, and store the position."""
        tables = dict(self._position.tables)
        for table in self._new_tables:
            self._erase(table)
            tables[table.name] = tables[table.name]._replace(is_begun=True)
        self._position = replace(self._position, tables=tables)
        self._commit()

    def _take_burst(self) -> bool:
        """Take messages of the stream. Return whether it has no more for now."""
        read, take = self._stream.read, self.changes.take
        self.changes.is_tracking = not self._snapshot.is_done
        for _ in range(_BURST):
            data = read()
            if data is None:
                return True
            if data[0] == KEEPALIVE:
                self._reached = max(self._reached, keepalive(data)[0])
                if self._plan.is_between:
                    self._plan.passed(self._reached)
            elif emptied := take(data, HEADER, wal_place(data)[0]):
                self._truncate(emptied)
        return False

    def _truncate(self, tables: list[Table]) -> None:
        """Remove the rows of tables. They are in the log, once everything before this has been committed."""
        self._sink.send(self.changes.records)
        self._commit()
        if self._plan.wants_next:
            for table in tables:
                self._erase(table)
        self._plan.change()

    def _erase(self, table: Table) -> None:
        """Remove the rows that a topic has. This may take long, and is then committed in parts.

        The position stays before it until it is complete: a capture that is started again removes the rows that are
        left.
        """
        self.changes.emptied(table)
        for keys in _batches(self._sink.live_keys(table.topic, self._stay_connected)):
            self.changes.erase(table, keys)
            self._sink.send(self.changes.records)
            self._stay_connected()
            if self._sink.open_s >= self._settings.limits.split_s:
                self._commit()

    def _advance_snapshot(self) -> None:
        taken = self._snapshot.advance(max(self._reached, self._plan.lsn))
        if taken is None:
            return
        for key, row in taken.rows:
            self._envelope.read(taken.table, key, row, self.changes.records.append)
        self.changes.rows += len(taken.rows)
        self._sink.send(self.changes.records)
        self._position = replace(self._position, tables={**self._position.tables, taken.table.name: taken.progress})
        self._commit()

    def _commit(self) -> None:
        self._position = replace(self._position, lsn=self._plan.lsn, part=self._plan.part)
        self._sink.commit(self._position)

    def _is_done(self, goal: int) -> bool:
        return self._snapshot.is_done and not self._sink.records and self._plan.is_between and self._plan.lsn >= goal

    def _report(self, report: Report) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < REPORT_EVERY_S:
            return
        self._reported_s = now_s
        slot = self.source.slot()
        if slot is None:
            raise CaptureError(f"the slot {self.source.name} was dropped")
        self._check_tables()
        self._check_topics()
        lag_bytes = max(slot.end_lsn - self._stored_lsn, 0)
        behind_s = time.time() - POSTGRES_EPOCH_S - self.changes.commit_time_us / 1e6
        is_behind = self._sink.records or not self._plan.is_between
        report(
            CaptureStatus(
                self.changes.rows,
                lag_bytes,
                max(behind_s, 0.0) if is_behind else 0.0,
                slot.size_bytes,
                self._snapshot.is_done,
            )
        )

    def _check_topics(self) -> None:
        """Raise SkylogError if a topic is no longer the one with the rows: the next run reads its table anew."""
        ids = {topic_of(self._settings.prefix, name): each.topic_id for name, each in self._position.tables.items()}
        positions = positions_topic(self._settings.prefix)
        try:
            found = self._sink.topic_ids([positions, *ids])
        except SkylogError as error:
            logger.debug("cannot look at the topics: %s", error)  # what matters fails in the producer, too
            return
        missing = [topic for topic, known in ids.items() if found.get(topic) != known]
        missing += [] if positions in found else [positions]
        if missing:
            raise SkylogError(f"the topic {', '.join(missing)} was deleted under the capture")

    def _check_tables(self) -> None:
        """Raise TableChangedError if the stream no longer has all changes, and CaptureError if a table is gone."""
        published = self.source.published()
        for name, table in self.source.tables(self._settings.tables).items():
            known = self._position.tables[name]
            if table.oid != known.oid:
                raise TableChangedError(name, "it was created anew")
            if (table.key, table.key_types) != (known.key, known.key_types):
                raise TableChangedError(name, "its primary key has changed")
            if name not in published:
                raise TableChangedError(name, f"it was removed from the publication {self.source.name}")

    @property
    def _stored_lsn(self) -> int:
        """Everything before it is in the log."""
        return self._position.lsn if self._sink.records or not self._plan.is_between else self._plan.lsn

    def _confirm(self, *, wants_reply: bool) -> None:
        """Let PostgreSQL remove what is in the log. Ask how far the stream is, if a chunk waits for it."""
        awaited = self._snapshot.awaited_lsn
        is_awaited = awaited is not None and awaited > self._reached
        self._stream.confirm(self._stored_lsn, wants_reply=wants_reply or is_awaited)
        self._confirmed_s = time.monotonic()

    def _stay_connected(self) -> None:
        """Keep PostgreSQL from ending the stream, as it does with clients that are silent for a minute."""
        if time.monotonic() - self._confirmed_s >= CONFIRM_EVERY_S:
            self._confirm(wants_reply=False)


def _envelope(settings: CaptureSettings, database: str) -> Envelope:
    if settings.envelope is EnvelopeName.PLAIN:
        return Plain()
    kind = AvroDebezium if settings.format is FormatName.AVRO else Debezium
    return kind(settings.prefix, database, lambda: time.time_ns() // 1_000_000)


def _rows_of(settings: CaptureSettings, resources: ExitStack) -> RowsOf:
    if settings.format is FormatName.JSON:
        return json_rows
    if settings.registry is None:
        raise ConfigError("Avro requires a schema registry: --registry http://127.0.0.1:8081")
    registry = RegistryClient(settings.registry)
    resources.callback(registry.close)
    return AvroFormat(registry, has_envelope=settings.envelope is EnvelopeName.DEBEZIUM).rows


def _batches(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    left = iter(keys)
    while batch := list(islice(left, _BURST)):
        yield batch
