"""The database of a capture: its tables, and the publication and the slot that are made for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from skylog.capture.merge import without_page_header
from skylog.capture.pgoutput import parse_lsn
from skylog.capture.replication import conninfo
from skylog.capture.table import CaptureError, no_key

_NAME_LENGTH: Final = 63

_TABLES: Final = """
SELECT n.nspname || '.' || c.relname AS name, c.oid::bigint, c.relkind, c.relreplident, c.relpersistence,
    (SELECT array_agg(a.attname ORDER BY k.n) FROM pg_index i, unnest(i.indkey::int[]) WITH ORDINALITY AS k(number, n),
        pg_attribute a WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number),
    (SELECT array_agg(a.atttypid::bigint ORDER BY k.n) FROM pg_index i,
        unnest(i.indkey::int[]) WITH ORDINALITY AS k(number, n),
        pg_attribute a WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number),
    (SELECT i.indisprimary FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident), n.nspname,
    EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attgenerated <> ''),
    c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname || '.' || c.relname = ANY(%s)
"""
_SLOT: Final = """
SELECT confirmed_flush_lsn::text, wal_status, active, database = current_database(), plugin,
    pg_current_wal_lsn()::text, pg_current_wal_lsn() - restart_lsn
FROM pg_replication_slots WHERE slot_name = %s
"""
_DOMAINS: Final = """
WITH RECURSIVE base(id, type, modifier) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE oid = ANY(%s) AND typtype = 'd'
    UNION ALL SELECT b.id, t.typbasetype, t.typtypmod FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd'
) SELECT b.id, b.type, b.modifier FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype <> 'd'
"""
_FIRST_OWN_TYPE: Final = 16384  # the types of PostgreSQL itself are below


class Slot(NamedTuple):
    """A slot. `end_lsn` is the end of the WAL, and `size_bytes` what the server keeps of it for the slot."""

    confirmed_lsn: int
    is_lost: bool
    is_active: bool
    end_lsn: int
    size_bytes: int


class SourceTable(NamedTuple):
    """What identifies a table, and the columns of its primary key with their types.

    A table that is created anew has another `oid`.
    """

    oid: int
    key: tuple[str, ...]
    key_types: tuple[int, ...]


class Source:
    """A connection for questions, not for the stream. Raises CaptureError, and psycopg.Error if it is lost."""

    def __init__(self, url: str, prefix: str) -> None:
        self.connection = psycopg.connect(conninfo(url), autocommit=True)
        self.name = resource_name(prefix)
        self._prefix = prefix

    def close(self) -> None:
        self.connection.close()

    @property
    def database(self) -> str:
        return self.connection.info.dbname

    def system(self) -> str:
        """Return what identifies the database among all others."""
        (row,) = self._rows("SELECT system_identifier::text || '/' || current_database() FROM pg_control_system()")
        return str(row[0])

    def check(self) -> None:
        """Raise CaptureError if the server cannot stream changes."""
        ((level, in_recovery),) = self._rows("SELECT current_setting('wal_level'), pg_is_in_recovery()")
        if level != "logical":
            raise CaptureError(
                f"the database has wal_level = {level}, and its changes can be read with logical only: "
                "ALTER SYSTEM SET wal_level = logical, and restart the server"
            )
        if in_recovery:
            raise CaptureError("the server is a standby: connect to its primary")

    def tables(self, names: Sequence[str]) -> dict[str, SourceTable]:
        """Return the tables as they are now. Raises CaptureError for one that cannot be captured."""
        found = {row[0]: row[1:] for row in self._rows(_TABLES, list(names))}
        tables = {}
        for name in names:
            if name not in found:
                raise CaptureError(
                    f"there is no table {name} in the database: name tables as SCHEMA.TABLE, and leave out of --tables "
                    "what was dropped"
                )
            oid, kind, identity, persistence, key, key_types, is_primary, schema, is_generated, has_heirs = found[name]
            if "." in schema:
                raise CaptureError(f"{name}: a schema with a dot in its name cannot be captured; rename it")
            if kind not in ("r", "p"):
                raise CaptureError(f"{name} is not a table: only tables have changes")
            if persistence != "p":
                raise CaptureError(f"the changes of the table {name} are not logged: ALTER TABLE {name} SET LOGGED")
            if not key:
                raise no_key(name)
            if is_generated:
                raise CaptureError(
                    f"the primary key of the table {name} has a generated column, which PostgreSQL does not log: "
                    "choose another primary key, or leave the table out of --tables"
                )
            if has_heirs:
                raise CaptureError(
                    f"other tables inherit from {name}, and their rows have keys of their own: capture those tables, "
                    f"and end the inheritance with ALTER TABLE … NO INHERIT {name}, or leave {name} out of --tables"
                )
            if identity == "n" or (identity == "i" and not is_primary):
                raise CaptureError(
                    f"the replica identity of the table {name} is not its primary key: "
                    f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or FULL"
                )
            tables[name] = SourceTable(oid, tuple(key), tuple(key_types))
        return tables

    def publish(self, tables: Sequence[str]) -> None:
        """Make the publication with these tables, and no others."""
        name = sql.Identifier(self.name)
        wanted = sql.SQL(", ").join(_identifier(table) for table in tables)
        if not self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", self.name):
            self._execute(
                sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)").format(
                    name, wanted
                )
            )
        elif self.published() != set(tables):
            self._execute(sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(name, wanted))

    def published(self) -> set[str]:
        """Return the tables of the publication."""
        query = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
        return {row[0] for row in self._rows(query, self.name)}

    def slot(self) -> Slot | None:
        """Return the state of the slot; None if there is none."""
        rows = self._rows(_SLOT, self.name)
        if not rows:
            return None
        confirmed, status, active, is_here, plugin, end, size = rows[0]
        if not is_here or plugin != "pgoutput":
            raise CaptureError(
                f"the server has another slot with the name {self.name}: choose another --prefix, or drop it with "
                f"SELECT pg_drop_replication_slot('{self.name}')"
            )
        lsn = parse_lsn(confirmed) if confirmed else 0
        return Slot(lsn, status == "lost", active, parse_lsn(end), int(size or 0))

    def end_lsn(self) -> int:
        """Return where the last record of the WAL ends, also if it is not on the disk yet."""
        ((lsn,),) = self._rows("SELECT pg_current_wal_insert_lsn()::text")
        return without_page_header(parse_lsn(lsn))

    def create_slot(self) -> int:
        """Create the slot. Return where its stream begins."""
        query = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        try:
            ((lsn,),) = self._rows(query, self.name)
        except psycopg.errors.InsufficientPrivilege as error:
            user = self.connection.info.user
            raise CaptureError(
                f"the user {user} may not read the changes of the database: as a superuser, run "
                f"{sql.SQL('ALTER ROLE {} REPLICATION').format(sql.Identifier(user)).as_string(self.connection)}"
            ) from error
        return parse_lsn(lsn)

    def drop(self) -> list[str]:
        """Drop the slot and the publication. Return what there was of them."""
        dropped = []
        slot = self.slot()
        if slot is not None:
            if slot.is_active:
                raise CaptureError(f"the capture {self._prefix} is running: stop it first")
            self._rows("SELECT pg_drop_replication_slot(%s)", self.name)
            dropped.append(f"slot {self.name}")
        if self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", self.name):
            self._execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self.name)))
            dropped.append(f"publication {self.name}")
        return dropped

    def running_until(self) -> int:
        """Return the id of a new transaction: those that run now have lower ones.

        The `xmax` of a snapshot would not do: the newest of them may have that id.
        """
        ((xid,),) = self._rows("SELECT pg_current_xact_id()::text")
        return int(xid)

    def oldest_running(self) -> int:
        ((xmin,),) = self._rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return int(xmin)

    def base_types(self, type_oids: Iterable[int]) -> Mapping[int, tuple[int, int]]:
        """Return the base types of those types that are domains, with their modifiers."""
        own = [oid for oid in type_oids if oid >= _FIRST_OWN_TYPE]
        return {oid: (base, modifier) for oid, base, modifier in self._rows(_DOMAINS, own)} if own else {}

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, parameters or None).fetchall()

    def _execute(self, query: sql.Composed) -> None:
        try:
            self.connection.execute(query)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState) as error:
            raise CaptureError(
                f"cannot make the publication {self.name}: {error.diag.message_primary}; "
                "the user of a capture owns its tables and may create in the database"
            ) from error


def resource_name(prefix: str) -> str:
    """Return the name of the slot and the publication of a capture. Names with other characters get a suffix."""
    name = "skylog_" + re.sub(r"[^a-z0-9_]", "_", prefix)
    if name != f"skylog_{prefix}" or len(name) > _NAME_LENGTH:
        name = f"{name[: _NAME_LENGTH - 9]}_{hashlib.sha256(prefix.encode()).hexdigest()[:8]}"
    return name


def _identifier(table: str) -> sql.Composable:
    return sql.Identifier(*table.split(".", 1))
