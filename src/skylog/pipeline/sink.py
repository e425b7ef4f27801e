"""The contract of sinks: results and the offsets that they cover are stored in one step.

A sink is described by a value (`Topic`, `Table`, `Database`) and opened for a run. An open sink says what it has, and
adds rows together with new offsets. A batch of a streaming query has an offset too: that of its stream, a partition
whose offset is the number of the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from skylog.pipeline.increments import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class OpenSink(Protocol):
    """A sink during a run. Every call may raise SkylogError."""

    def offsets(self, topics: Collection[str]) -> Offsets:
        """Return the end offsets of the results, for these topics."""
        ...

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        """Add rows and replace the offsets `before` with `after`, both or neither.

        Calls `before_commit` when the rows are computed and not yet stored.
        Raises an error, and writes nothing, unless the stored offsets of the changed partitions are those in `before`.
        """
        ...

    def has_rows(self) -> bool: ...

    def close(self) -> None: ...


class Sink(Protocol):
    """Where the results of a job go."""

    @property
    def target(self) -> str:
        """The target for people, without secrets."""
        ...

    def open(self) -> OpenSink: ...

    def for_unparsed(self) -> Sink:
        """Return the sink of records that do not parse."""
        ...
