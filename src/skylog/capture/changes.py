"""Turns the messages of the stream to records. Pure: it reads nothing but what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from skylog.capture.envelope import Envelope, Record
from skylog.capture.merge import SnapshotMerge
from skylog.capture.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    Values,
    decode,
)
from skylog.capture.plan import Plan
from skylog.capture.position import Progress
from skylog.capture.table import CaptureError, Table, Tables, check_key

ReadMissing = Callable[[Table, Values], Values]
"""Returns a row with its unchanged values read from the table; those stay as they are if the row is gone."""

BaseTypes = Callable[[Iterable[int]], Mapping[int, tuple[int, int]]]
"""Returns the base types of those types that are domains, with their modifiers."""


class Changes:
    """Collects the records of the stream in `records`.

    `captured` are the tables as the capture began with them. They are known by their oid, whatever their name is, and
    changes that were committed before their snapshot are left out: it has them.
    """

    def __init__(
        self,
        tables: Tables,
        captured: Mapping[str, Progress],
        envelope: Envelope,
        plan: Plan,
        merge: SnapshotMerge,
        read_missing: ReadMissing,
        base_types: BaseTypes,
    ) -> None:
        self.records: list[Record] = []
        self._emit = self.records.append
        self._described = tables
        self._captured = captured
        self._names = {progress.oid: name for name, progress in captured.items()}
        self._since = max((progress.since for progress in captured.values()), default=0)
        self._envelope = envelope
        self._plan = plan
        self._merge = merge
        self._read_missing = read_missing
        self._base_types = base_types
        self._relations: dict[int, Relation] = {}
        self._tables = _TablesInUse(self._table)
        self._commit_lsn = self._lsn = 0
        self.is_tracking = False  # while there are snapshots to be read
        self.commit_time_us = 0
        self.rows = 0

    def take(self, data: bytes, at: int, lsn: int) -> list[Table]:
        """Take a message. Return the tables that it empties: their rows are to be removed with `erase`.

        The changes before it are to be committed first, and `Plan.change` is to be called then.
        """
        message = decode(data, at)
        if type(message) is Insert:
            if self._plan.change() and (table := self._tables[message.relation]) is not None:
                self.rows += 1
                key = self._envelope.insert(table, message.new, lsn, self._emit)
                if table.name == self._merge.table:
                    self._merge.streamed(key)
        elif type(message) is Update:
            if self._plan.change() and (table := self._tables[message.relation]) is not None:
                self.rows += 1
                self._update(table, message, lsn)
        elif type(message) is Delete:
            if self._plan.change() and (table := self._tables[message.relation]) is not None:
                self.rows += 1
                key = self._envelope.delete(table, message.old, lsn, self._emit)
                if table.name == self._merge.table:
                    self._merge.streamed(key)
        elif type(message) is Begin:
            if self._commit_lsn <= self._since:
                self._tables.clear()  # which of them are left out may be different now
            self._commit_lsn = message.commit_lsn
            self._plan.begin(message)
            self._envelope.begin(message)
            self.commit_time_us = message.commit_time_us
            if self.is_tracking:
                self._merge.streamed_transaction(message.xid)
        elif type(message) is Commit:
            self._plan.commit(message)
        elif type(message) is Relation:
            self._relations[message.id] = message
            self._tables.pop(message.id, None)
        elif type(message) is Truncate:
            self._lsn = lsn
            emptied = [table for each in message.relations if (table := self._tables[each]) is not None]
            if not emptied:
                self._plan.change()
            return emptied
        return []

    def erase(self, table: Table, keys: Iterable[bytes]) -> None:
        """Remove rows of a table by their keys."""
        for key in keys:
            self.rows += 1
            self._envelope.erase(table, key, self._lsn, self._emit)

    def emptied(self, table: Table) -> None:
        """Forget the rows of a table that were read for its snapshot and are not in the log yet."""
        self._merge.cleared(table.name)

    def _update(self, table: Table, message: Update, lsn: int) -> None:
        new = table.rows.filled(message.old, message.new, message.is_whole)
        if self._envelope.fills and UNCHANGED in new:
            new = self._read_missing(table, new)
        before, key = self._envelope.update(table, message.old, new, lsn, self._emit)
        if table.name == self._merge.table:
            self._merge.streamed(before)
            self._merge.streamed(key)

    def _table(self, relation_id: int) -> Table | None:
        """Return a table as the stream describes it now. None if its changes are not to be written."""
        relation, name = self._relations[relation_id], self._names.get(relation_id)
        if name is None or self._commit_lsn < self._captured[name].since:
            return None
        if relation.identity == "n":
            raise CaptureError(
                f"the table {name} has REPLICA IDENTITY NOTHING, so its updates have no key: "
                f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
            )
        bases = self._base_types(column.type_oid for column in relation.columns)
        columns = []
        for each in relation.columns:
            type_oid, modifier = bases.get(each.type_oid, (each.type_oid, each.type_modifier))
            columns.append(each._replace(type_oid=type_oid, type_modifier=modifier))
        key = self._captured[name].key
        check_key(name, relation, dict(zip(key, self._captured[name].key_types, strict=True)))
        return self._described.of(name, columns, key)


class _TablesInUse(dict[int, Table | None]):
    """Tables by their relation in the stream, each made when a change needs it. None: not to be written."""

    def __init__(self, make: Callable[[int], Table | None]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, relation_id: int) -> Table | None:
        table = self[relation_id] = self._make(relation_id)
        return table
