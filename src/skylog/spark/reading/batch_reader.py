"""Batch reads of topics between two positions: `spark.read`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from skylog.spark.reading.filters import RangeFilter
from skylog.spark.reading.options import ReadOptions
from skylog.spark.reading.ranges import ReadRange, divide, within_log

if TYPE_CHECKING:
    import pyarrow as pa

    from skylog.spark.reading.cluster import Cluster


class SkylogReader(DataSourceReader):
    """Plans in the driver, and reads in executors, which get a pickled copy."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filter = RangeFilter()

    def partitions(self) -> Sequence[InputPartition]:
        from skylog.spark.reading.cluster import Cluster  # imports librdkafka, which executors do not need

        options = self._options
        return divide(self._ranges(Cluster(options.kafka)), options.min_partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadRange):  # Spark's placeholder if `partitions` returned none
            return iter(())
        from skylog.spark.reading.range_reader import read_range  # imports Arrow and numpy

        return read_range(self._options, partition, self._schema)

    def _ranges(self, cluster: Cluster) -> list[ReadRange]:
        from skylog.spark.reading.positions import Anchor, check_batch, ending_position, resolve, starting_position
        from skylog.spark.reading.subscription import chosen_partitions

        options = self._options
        start, end = starting_position(options, Anchor.EARLIEST), ending_position(options)
        check_batch(start, end)
        keys = chosen_partitions(options, cluster.topics())
        starts = resolve(cluster, keys, start, options)
        ends = resolve(cluster, keys, end, options)
        keys = [key for key in keys if self._filter.accepts(key)]
        first, last = cluster.earliest(keys), cluster.latest(keys)
        ranges = [
            within_log(
                ReadRange(*key, starts[key], ends[key]),
                first[key],
                last[key],
                fail_on_data_loss=options.fail_on_data_loss,
            )
            for key in keys
        ]
        return self._narrowed(cluster, ranges)

    def _narrowed(self, cluster: Cluster, ranges: list[ReadRange]) -> list[ReadRange]:
        """Return the ranges, narrowed by the query's filters."""
        low, high = self._filter.start_offset, self._filter.end_offset
        if self._filter.min_timestamp_ms is not None:
            found = cluster.at_times({each.topic_partition: self._filter.min_timestamp_ms for each in ranges})
            firsts = {key: high if offset is None else offset for key, offset in found.items()}
        else:
            firsts = {}
        return [
            replace(
                each,
                start_offset=max(each.start_offset, low, firsts.get(each.topic_partition, 0)),
                end_offset=min(each.end_offset, high),
            )
            for each in ranges
        ]


class FilteringReader(SkylogReader):
    """Narrows the ranges by the query's filters, for the option pushDownFilters.

    A separate class, because Spark 4.3 reuses the ranges of the last filtered query for all queries on the same
    DataFrame: a union of two parts of one DataFrame would read one part twice. Spark also rejects readers with
    `pushFilters` in sessions that do not enable filter pushdown to Python.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        self._filter.take(filters)
        return filters
