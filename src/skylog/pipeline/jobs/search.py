"""The job `search`: a full-text index that stays in step with a topic of documents, deletes included.

The topic is a changelog: the key of a record is the id of a document, the value is the document as JSON, and a record
without a value deletes it. The index is one SQLite file, see `skylog.search_index`. Documents, their words and the end
offsets of the records change in one transaction, so the index is that of the log at these offsets, whatever is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.database import Database, OpenDatabase
from skylog.pipeline.event_parser import all_fields
from skylog.pipeline.job_definition import Job
from skylog.search_index import DEFAULT_INDEX, DOCUMENTS, create_index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA: Final = "title STRING, text STRING"


@dataclass(frozen=True)
class DocumentFields:
    """Where a document is in a record: SQL expressions over the fields of `schema`, and over the struct `record`.

    Records for which `where` does not hold are ignored, except those without a value, which delete a document.
    """

    schema: str = SCHEMA
    id: str = "IF(is_valid_utf8(CAST(record.key AS STRING)), CAST(record.key AS STRING), hex(record.key))"
    title: str = "title"
    text: str = "text"
    deleted: str = "false"
    where: str = "true"


@dataclass(frozen=True)
class SearchIndex:
    """The index as a sink: a SQLite table whose triggers maintain the index of words."""

    path: Path = DEFAULT_INDEX

    @property
    def target(self) -> str:
        return str(self.path)

    @property
    def _database(self) -> Database:
        return Database(f"sqlite:///{quote(str(self.path))}", DOCUMENTS, key=("id",))

    def open(self) -> OpenDatabase:
        create_index(self.path)
        return self._database.open()

    def for_unparsed(self) -> Database:
        return self._database.for_unparsed()


def documents(records: DataFrame, fields: DocumentFields | None = None) -> DataFrame:
    """Return the last state of each document in `records`, which have the columns of the data source.

    A value without title and text, for example because it is not JSON, is indexed as it is. Records without an id are
    ignored. Within a partition the highest offset is the last; a document should stay in its partition. If it is in
    several partitions or topics, the newer last record counts.
    """
    of = fields or DocumentFields()
    has_no_value = F.col("record.value").isNull()
    whole = F.make_valid_utf8(F.col("record.value").cast("string"))
    rows = all_fields(records, of.schema).where(has_no_value | F.expr(of.where))
    changes = rows.select(
        F.expr(of.id).cast("string").alias("id"),
        F.expr(of.title).cast("string").alias("title"),
        F.expr(of.text).cast("string").alias("text"),
        F.col("record.timestamp").alias("changed_at"),
        (has_no_value | F.coalesce(F.expr(of.deleted), F.lit(False))).alias("deleted"),
        whole.alias("whole"),
        "record.topic",
        "record.partition",
        "record.offset",
    ).where("id IS NOT NULL")
    last = _last(changes, ["id", "topic", "partition"], "offset")
    last = _last(last, ["id"], "struct(changed_at, topic, partition)")
    return last.selectExpr(
        "id",
        "coalesce(title, '') AS title",
        "CASE WHEN deleted THEN '' WHEN title IS NULL AND text IS NULL THEN whole ELSE coalesce(text, '') END AS text",
        "changed_at",
        "deleted",
    )


def search_job(topics: Sequence[str], index: SearchIndex | None = None, fields: DocumentFields | None = None) -> Job:
    """Return the job that keeps the index up to date with the topics."""

    def search(records: DataFrame) -> DataFrame:
        return documents(records, fields)

    return Job(search, topics, index or SearchIndex(), schema=None)


def _last(changes: DataFrame, keys: list[str], order: str) -> DataFrame:
    whole = F.struct(*(F.col(name) for name in changes.columns))
    return changes.groupBy(*keys).agg(F.max_by(whole, F.expr(order)).alias("last")).select("last.*")
