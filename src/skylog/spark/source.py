"""The entry point of the data source. It creates the readers and writers.

Spark starts a Python process for every call, so this module imports as little as possible.
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
from skylog.spark.versions import check_pyspark

FORMAT: Final = "skylog"


class SkylogSource(DataSource):
    """Topics as tables and streams, with the columns and options of Spark's own Kafka source.

        spark.read.format("skylog").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t").load()

    Columns: key and value (binary), topic, partition, offset, timestamp, timestampType and, with includeHeaders,
    headers. See `ReadOptions` for the options. Apache Kafka works too.

        df.write.format("skylog").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "t")
            .mode("append").save()

    writes the columns described in `row_columns`, each row once. See `WriteOptions` for the options.
    """

    def __init__(self, options: dict[str, str]) -> None:
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType | str:
        # Batch or stream is not known yet. Each reader checks the options that are invalid for it.
        options = read_options(self.options, is_stream=False)
        if options.value_schema is not None:
            return value_schema(options.value_schema, with_headers=options.include_headers)
        if options.value_format == "avro":
            from skylog.spark.reading.avro_schema import avro_schema

            return avro_schema(options)
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
        raise OptionError("the schema of a topic is fixed: remove .schema(...), and use the option valueSchema instead")
    if options.value_format == "json":
        from skylog.spark.reading.json_values import JsonValues

        JsonValues(arrow_schema(schema))  # raises OptionError for unsupported types
