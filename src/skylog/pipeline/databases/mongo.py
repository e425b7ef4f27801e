"""Collections in MongoDB, exactly once without multi-document transactions. Imports pymongo on first use.

    visits          {_id: "2024-05-01 acme", day: ISODate("2024-05-01"), organisation: "acme", visits: 42, batch: 7}
    visits_offsets  {_id: "offsets", batch: 7, offsets: [{topic, partition, end_offset}], plan: null}

A job first stores the changes as the plan of the next batch, together with its end offsets. This update matches only
the batch before, so one of two jobs wins. From then on the batch is committed. Every job that finds a plan applies it
before anything else, with an update per document that matches only if the document's own batch is an earlier one. So
the plan can be applied repeatedly and concurrently. Then the plan is removed.

No batch is planned before the last one is applied. So if a job pauses and continues later, its documents are at its
batch or a later one, and its updates match nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from skylog.model import TopicPartition
from skylog.pipeline.databases.store import (
    Offsets,
    Row,
    RowLayout,
    StoreError,
    check_has_offsets,
    check_table,
    check_unmoved,
    redacted_url,
)

_DATABASE: Final = "skylog"
_STATE: Final = {"_id": "offsets"}
_TIMEOUTS_MS: Final = {"serverSelectionTimeoutMS": 10_000, "socketTimeoutMS": 30_000}
_DUPLICATE_KEY: Final = 11000
_BATCH: Final = "batch"


class MongoStore:
    """`mongodb://user:password@host/database`, with MongoDB's options. The default database is `skylog`."""

    def __init__(self, url: str, table: str) -> None:
        try:
            import pymongo
            import pymongo.errors
        except ImportError as error:
            raise StoreError(f"MongoDB requires pymongo ({error}): pip install 'skylog[mongo]'") from error
        self._pymongo = pymongo
        self._where = f"collection {check_table(table)} in {redacted_url(url)}"
        with self._plain_errors():
            timeouts: dict[str, Any] = {
                key: value for key, value in _TIMEOUTS_MS.items() if key.lower() not in url.lower()
            }
            self._client: Any = pymongo.MongoClient(url, connect=False, **timeouts)
            # Acknowledged writes must survive the loss of a server, or a batch could be planned twice.
            database = self._client.get_default_database(_DATABASE).with_options(
                write_concern=pymongo.WriteConcern("majority"), read_preference=pymongo.ReadPreference.PRIMARY
            )
        self._rows = database[table]
        self._offsets = database[f"{table}_offsets"]

    def offsets(self) -> dict[TopicPartition, int]:
        with self._plain_errors():
            return _offsets(self._state())

    def apply(
        self, layout: RowLayout, rows: Sequence[Row], before: Offsets, after: Offsets, deleted: Sequence[Row] = ()
    ) -> None:
        if deleted or layout.precedence is not None:
            # A job that continues late would create a deleted document again.
            raise StoreError(f"{self._where}: rows of MongoDB cannot be deleted; use PostgreSQL or SQLite")
        if _BATCH in layout.columns:
            raise StoreError(f"{self._where}: a column cannot be called '{_BATCH}' in MongoDB; rename it")
        plan = [_change(layout, row) for row in rows]
        with self._plain_errors():
            while True:
                state = self._state()
                stored = _offsets(state)
                check_unmoved(self._where, stored, before, after)
                planned = {
                    "batch": state["batch"] + 1,
                    "offsets": _documents({**stored, **after}),
                    "plan": plan,
                }
                found = self._offsets.update_one({**_STATE, "batch": state["batch"], "plan": None}, {"$set": planned})
                if found.matched_count:
                    return self._apply_plan(planned)
                # A job that writes other topics into the same collection was faster. Retry after its batch.

    def has_rows(self) -> bool:
        with self._plain_errors():
            return self._rows.find_one() is not None

    def close(self) -> None:
        self._client.close()

    def _state(self) -> Mapping[str, Any]:
        """Return the document of the offsets. If it has the plan of a job that died, apply that first."""
        state = self._offsets.find_one(_STATE)
        if state is None:
            is_foreign = self._rows.find_one() is not None and self._offsets.find_one(_STATE) is None
            check_has_offsets(self._where, {}, has_rows=is_foreign)
            with suppress(self._pymongo.errors.DuplicateKeyError):  # another job starts at the same time
                self._offsets.insert_one({**_STATE, "batch": 0, "offsets": [], "plan": None})
            return self._state()
        if state["plan"] is not None:
            self._apply_plan(state)
        return state

    def _apply_plan(self, planned: Mapping[str, Any]) -> None:
        batch, changes = planned["batch"], {change["_id"]: change for change in planned["plan"]}
        if changes:
            self._make_documents(changes)
            self._rows.bulk_write(
                [
                    self._pymongo.UpdateOne({"_id": key, "batch": {"$lt": batch}}, _update(change, batch))
                    for key, change in changes.items()
                ],
                ordered=False,
            )
        self._offsets.update_one({**_STATE, "batch": batch}, {"$set": {"plan": None}})

    def _make_documents(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Create the missing documents, with their key, zero in the columns that are added, and batch 0."""
        existing = {one["_id"] for one in self._rows.find({"_id": {"$in": list(changes)}}, {"_id": True})}
        missing = [
            {"_id": key, **change["key"], **dict.fromkeys(change["add"], 0), "batch": 0}
            for key, change in changes.items()
            if key not in existing
        ]
        try:
            if missing:
                self._rows.insert_many(missing, ordered=False)
        except self._pymongo.errors.BulkWriteError as error:
            codes = {one["code"] for one in error.details["writeErrors"]}
            if codes != {_DUPLICATE_KEY} or error.details["writeConcernErrors"]:
                raise
            self._make_documents(changes)  # another job creates them at the same time

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except self._pymongo.errors.DocumentTooLarge as error:
            raise StoreError(f"{self._where}: too many rows in one batch; limit it with --max-offsets") from error
        except self._pymongo.errors.PyMongoError as error:
            raise StoreError(f"{self._where}: {str(error).partition(', Timeout:')[0]}") from error


def _change(layout: RowLayout, row: Row) -> dict[str, Any]:
    """Return what a row changes, as a document of a plan."""
    values = dict(zip(layout.columns, layout.summable(row), strict=True))
    return {
        "_id": _id([values[name] for name in layout.key]),
        "key": {name: _value(values[name]) for name in layout.key},
        "add": {name: _value(values[name]) for name in layout.add},
        "set": {name: _value(values[name]) for name in layout.replaced},
    }


def _update(change: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """Return the update of a document. Plans of earlier versions may add None, which MongoDB refuses."""
    update: dict[str, Any] = {"$set": {**change["set"], "batch": batch}}
    added = {name: 0 if value is None else value for name, value in change["add"].items()}
    return {**update, "$inc": added} if added else update


def _id(values: Sequence[Any]) -> str:
    """Return the key as a text. Only the last part may have spaces."""
    *first, last = (value.isoformat() if isinstance(value, date) else str(value) for value in values)
    return " ".join([*(text.replace("%", "%25").replace(" ", "%20") for text in first), last])


def _value(value: Any) -> Any:
    """Return a value that BSON has: a date is midnight UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    if isinstance(value, Decimal):
        from bson.decimal128 import Decimal128

        return Decimal128(value)
    return bytes(value) if isinstance(value, bytearray) else value


def _offsets(state: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(one["topic"], one["partition"]): one["end_offset"] for one in state["offsets"]}


def _documents(offsets: Offsets) -> list[dict[str, Any]]:
    """Return a list, because topic names may have dots, which field names should not have."""
    return [{**key._asdict(), "end_offset": offset} for key, offset in sorted(offsets.items())]
