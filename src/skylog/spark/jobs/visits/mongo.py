"""Visits in MongoDB, exact without transactions over several documents. pymongo is loaded when it is needed.

    visits          {_id: "2024-05-01 acme", organisation: "acme", day: ISODate("2024-05-01"), visits: 42, batch: 7}
    visits_offsets  {_id: "offsets", batch: 7, offsets: [{topic, partition, end_offset}], plan: null}

What is to be added is first written down, as the plan of the next batch and together with the offsets that it leads to,
by an update that applies only to the batch before: of two jobs one comes first. From then on the batch counts. Whoever
finds a plan carries it out before anything else: an update per document, which applies only where the document's own
batch is an earlier one, so it may be tried as often as need be, and by several at once. Then the plan is struck out.

A job that was thought dead and wakes up finds its documents at its batch or a later one, because no batch is planned
before the last one is carried out: its updates find nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from skylog.model import TopicPartition
from skylog.spark.jobs.visits.stores import (
    Count,
    Offsets,
    StoreError,
    check_known,
    check_table,
    check_unmoved,
    shown_url,
)

_DATABASE: Final = "skylog"
_STATE: Final = {"_id": "offsets"}
_PATIENCE_MS: Final = {"serverSelectionTimeoutMS": 10_000, "socketTimeoutMS": 30_000}
_DUPLICATE_KEY: Final = 11000


class MongoStore:
    """`mongodb://user:password@host/database`, with MongoDB's options; the database is `skylog` unless one is named."""

    def __init__(self, url: str, table: str) -> None:
        try:
            import pymongo
            import pymongo.errors
        except ImportError as error:
            raise StoreError(f"MongoDB wants pymongo ({error}): pip install 'skylog[mongo]'") from error
        self._pymongo = pymongo
        self._where = f"collection {check_table(table)} in {shown_url(url)}"
        with self._plain_errors():
            patience: dict[str, Any] = {
                key: value for key, value in _PATIENCE_MS.items() if key.lower() not in url.lower()
            }
            self._client: Any = pymongo.MongoClient(url, connect=False, **patience)
            # What was answered must outlive the loss of a server, or a batch could be planned twice.
            database = self._client.get_default_database(_DATABASE).with_options(
                write_concern=pymongo.WriteConcern("majority"), read_preference=pymongo.ReadPreference.PRIMARY
            )
        self._visits = database[table]
        self._offsets = database[f"{table}_offsets"]

    def offsets(self) -> dict[TopicPartition, int]:
        with self._plain_errors():
            return _offsets(self._state())

    def apply(self, counts: Sequence[Count], before: Offsets, after: Offsets) -> None:
        with self._plain_errors():
            while True:
                state = self._state()
                stored = _offsets(state)
                check_unmoved(self._where, stored, before, after)
                planned = {
                    "batch": state["batch"] + 1,
                    "offsets": _documents({**stored, **after}),
                    "plan": [{**count._asdict(), "day": count.day.isoformat()} for count in counts],
                }
                found = self._offsets.update_one({**_STATE, "batch": state["batch"], "plan": None}, {"$set": planned})
                if found.matched_count:
                    return self._carry_out(planned)
                # A job that counts other topics into the same collection was faster: after its batch comes ours.

    def close(self) -> None:
        self._client.close()

    def _state(self) -> Mapping[str, Any]:
        """The document of the offsets, without a plan: that of a job that died is carried out first."""
        state = self._offsets.find_one(_STATE)
        if state is None:
            is_foreign = self._visits.find_one() is not None and self._offsets.find_one(_STATE) is None
            check_known(self._where, {}, has_counts=is_foreign)
            with suppress(self._pymongo.errors.DuplicateKeyError):  # another job has begun at the same time
                self._offsets.insert_one({**_STATE, "batch": 0, "offsets": [], "plan": None})
            return self._state()
        if state["plan"] is not None:
            self._carry_out(state)
        return state

    def _carry_out(self, planned: Mapping[str, Any]) -> None:
        batch, counts = planned["batch"], {_id(count): count for count in planned["plan"]}
        if counts:
            self._make_documents(counts)
            self._visits.bulk_write(
                [
                    self._pymongo.UpdateOne(
                        {"_id": key, "batch": {"$lt": batch}},
                        {"$inc": {"visits": count["visits"]}, "$set": {"batch": batch}},
                    )
                    for key, count in counts.items()
                ],
                ordered=False,
            )
        self._offsets.update_one({**_STATE, "batch": batch}, {"$set": {"plan": None}})

    def _make_documents(self, counts: Mapping[str, Mapping[str, Any]]) -> None:
        """Those of `counts` that are not there, without visits and before the first batch."""
        there = {one["_id"] for one in self._visits.find({"_id": {"$in": list(counts)}}, {"_id": True})}
        missing = [_empty(key, count) for key, count in counts.items() if key not in there]
        try:
            if missing:
                self._visits.insert_many(missing, ordered=False)
        except self._pymongo.errors.BulkWriteError as error:
            codes = {one["code"] for one in error.details["writeErrors"]}
            if codes != {_DUPLICATE_KEY} or error.details["writeConcernErrors"]:
                raise
            self._make_documents(counts)  # another job makes them at the same time

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except self._pymongo.errors.DocumentTooLarge as error:
            raise StoreError(f"{self._where}: too many counts at once; limit a batch, as --max-offsets does") from error
        except self._pymongo.errors.PyMongoError as error:
            raise StoreError(f"{self._where}: {str(error).partition(', Timeout:')[0]}") from error


def _id(count: Mapping[str, Any]) -> str:
    return f"{count['day']} {count['organisation']}"


def _empty(key: str, count: Mapping[str, Any]) -> dict[str, Any]:
    day = datetime.fromisoformat(count["day"]).replace(tzinfo=UTC)
    return {"_id": key, "organisation": count["organisation"], "day": day, "visits": 0, "batch": 0}


def _offsets(state: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(one["topic"], one["partition"]): one["end_offset"] for one in state["offsets"]}


def _documents(offsets: Offsets) -> list[dict[str, Any]]:
    """A list, because names of topics have dots, which names of fields should not have."""
    return [{**key._asdict(), "end_offset": offset} for key, offset in sorted(offsets.items())]
