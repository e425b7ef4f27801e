"""Decodes Avro values into the struct column `event`, by the schema whose id is in each value.

`_corrupt` says why `event` is null: the value has no id, the registry does not know it, the bytes do not match the
schema, or a field has a type that its column cannot hold. Both columns are null if there is no value. If no registry
can be reached, the task fails, so that Spark repeats it.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from skylog.schemas.avro_columns import MessageDecoder
from skylog.spark.reading.avro_schema import RECORDS, client_of, find_schema, shape_of_column
from skylog.spark.reading.options import ReadOptions
from skylog.spark.schema import EVENT, arrow_schema


class AvroValues:
    """Adds the two columns to record batches. They are the last two columns of `schema`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._schema = arrow_schema(schema)
        event = schema[EVENT]
        shape = shape_of_column(event.dataType, self._schema.field(EVENT).type)
        records = tuple((event.metadata or {}).get(RECORDS, ()))
        self._decoder = MessageDecoder(shape, partial(find_schema, client_of(options), records))

    def extend(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = self._decoder.decode(batch["value"])
        return pa.RecordBatch.from_arrays([*batch.columns, found.events, found.reasons], schema=self._schema)
