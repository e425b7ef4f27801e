"""The data source: what Spark asks first, and hands the rest to readers and writers.

Spark starts a process for every question, so what answers the first ones imports as little as it can.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from skylog.spark.errors import OptionError
from skylog.spark.reading.options import ReadOptions, read_options
from skylog.spark.schema import CORRUPT, EVENT, arrow_schema, record_schema, value_schema

FORMAT: Final = "skylog"


class SkylogSource(DataSource):
    """Topics as tables and streams, with the columns and options of Spark's own Kafka source.

        spark.read.format("skylog").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t").load()

    Columns: key and value (binary), topic, partition, offset, timestamp, timestampType and, with includeHeaders,
    headers. The options are those of `ReadOptions`. It reads from Apache Kafka as well.

        df.write.format("skylog").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "t")
            .mode("append").save()

    writes the columns of `row_columns` with the options of `WriteOptions`, each row once.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType | str:
        # Whether a stream or a batch follows is not known yet: what is wrong for one of them is found by its reader.
        options = read_options(self.options, is_stream=False)
        if options.value_schema is not None:
            return value_schema(options.value_schema, with_headers=options.include_headers)
        return record_schema(with_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from skylog.spark.reading.batch_reader import FilteringReader, SkylogReader

        options = read_options(self.options, is_stream=False)
        _check_schema(schema, options)
        return FilteringReader(options, schema) if options.push_down_filters else SkylogReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        from skylog.spark.reading.stream_reader import SkylogStreamReader

        options = read_options(self.options, is_stream=True)
        _check_schema(schema, options)
        return SkylogStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from skylog.spark.writing.write_options import write_options
        from skylog.spark.writing.writer import SkylogWriter

        return SkylogWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        from skylog.spark.writing.stream_writer import SkylogStreamWriter
        from skylog.spark.writing.write_options import write_options

        return SkylogStreamWriter(write_options(self.options), schema)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    fixed = record_schema(with_headers=options.include_headers)
    added = [EVENT, CORRUPT] if options.value_format else []
    if schema.fields[: len(fixed)] != fixed.fields or schema.names[len(fixed) :] != added:
        raise OptionError("the schema of a topic is fixed and cannot be given: leave .schema(...) out, use valueSchema")
    if options.value_format is not None:
        from skylog.spark.reading.json_values import JsonValues

        JsonValues(arrow_schema(schema))  # refuses types that it cannot make
