"""Reads a topic for `skylog tail`: finds the start, follows the topic, and prints messages."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from skylog.cli.message_view import as_line, as_rich
from skylog.client import (
    Admin,
    BrokerUnreachableError,
    Connection,
    Message,
    OffsetRange,
    PartitionReader,
    read_last,
)
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.message_document import as_json_line
from skylog.model import TopicPartition
from skylog.terminal import note, stdout, write

UNREACHABLE_NOTE_S: Final = 2.0
REFRESH_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to start. If none of these is set, at the last messages."""

    from_beginning: bool
    offset: int | None
    timestamp_ms: int | None

    @property
    def is_given(self) -> bool:
        return self.from_beginning or self.offset is not None or self.timestamp_ms is not None


@dataclass(frozen=True, slots=True)
class MessagePrinter:
    """Prints messages on stdout. If `meta` or `pretty` is None, it is on in a terminal."""

    json: bool
    meta: bool | None
    pretty: bool | None

    def show(self, messages: Iterable[Message]) -> None:
        terminal = stdout.is_terminal
        meta = terminal if self.meta is None else self.meta
        pretty = terminal if self.pretty is None else self.pretty
        if self.json:
            write("".join(f"{as_json_line(message)}\n" for message in messages))
        elif terminal:
            for message in messages:
                stdout.print(as_rich(message, meta=meta, pretty=pretty))
        else:
            write("".join(as_line(message, meta=meta, pretty=pretty) for message in messages))
        sys.stdout.flush()


class TopicTail:
    """Reads one topic for one command. If `partitions` is None, reads all, including new ones."""

    def __init__(
        self, connection: Connection, topic: str, partitions: list[int] | None, printer: MessagePrinter
    ) -> None:
        self._connection = connection
        self._admin = Admin(connection)
        self._topic = topic
        self._takes_all = not partitions
        self._printer = printer
        self._ranges = self._admin.offset_ranges(self._choose(partitions))

    def show_last(self, count: int, *, follow: bool) -> None:
        """Print the last `count` messages. With `follow`, also new ones."""
        if count:
            self._printer.show(read_last(self._connection, self._ranges, count))
        if follow:
            self._show({key: offsets.end_offset for key, offsets in self._ranges.items()}, None, follow=True)

    def show_from(self, start: StartPosition, count: int | None, *, follow: bool) -> None:
        """Print messages from `start` on, at most `count`."""
        self._show(self._start_offsets(start), count, follow=follow)

    def _choose(self, partitions: list[int] | None) -> list[TopicPartition]:
        known = {each.partition: each for each in self._admin.describe_topic(self._topic).topic_partitions}
        for number in partitions or ():
            if number not in known:
                raise SkylogError(
                    f"topic '{self._topic}' has no partition {number}: it has {len(known)}, numbered from 0"
                )
        return [known[number] for number in sorted(set(partitions or known))]

    def _start_offsets(self, start: StartPosition) -> dict[TopicPartition, int]:
        ranges = self._ranges
        if start.offset is not None:
            for key, offsets in ranges.items():
                if not offsets.start_offset <= start.offset <= offsets.end_offset:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"{key} has offsets from {offsets.start_offset} to {offsets.end_offset}, "
                        f"not {start.offset}; choose another --offset or --partition",
                    )
            return dict.fromkeys(ranges, start.offset)
        if start.timestamp_ms is not None:
            found = self._admin.offsets_at(list(ranges), start.timestamp_ms)
            return {key: ranges[key].end_offset if at is None else at for key, at in found.items()}
        return {key: offsets.start_offset for key, offsets in ranges.items()}

    def _show(self, starts: Mapping[TopicPartition, int], count: int | None, *, follow: bool) -> None:
        reader = PartitionReader(self._connection, starts)
        try:
            if follow:
                batches: Iterable[list[Message]] = self._follow(reader)
            else:
                ends = {key: OffsetRange(starts[key], self._ranges[key].end_offset) for key in starts}
                batches = reader.read_to_end(ends)
            left = count
            for messages in batches:
                if left is not None:
                    messages = messages[:left]
                    left -= len(messages)
                self._printer.show(messages)
                if left == 0:
                    return
        finally:
            reader.close()

    def _follow(self, reader: PartitionReader) -> Iterator[list[Message]]:
        """Yield new messages until the reader of stdout closes it. Prints a note if the broker is unreachable."""
        is_noted = False
        output = select.poll()
        output.register(sys.stdout.fileno(), 0)
        refreshed = time.monotonic()
        while True:
            messages = reader.read()
            lost = reader.lost_s > UNREACHABLE_NOTE_S
            if lost and not is_noted:
                reason = self._connection.down_reason
                note(f"{self._connection.bootstrap} is unreachable ({reason}); waiting for it")
            is_noted = lost
            if not messages and output.poll(0):
                return
            yield messages
            if not lost and time.monotonic() - refreshed > REFRESH_S:
                self._refresh(reader)
                refreshed = time.monotonic()

    def _refresh(self, reader: PartitionReader) -> None:
        """Add new partitions. Raises TopicNotFoundError if the topic was deleted."""
        try:
            present = self._admin.describe_topic(self._topic).topic_partitions
        except BrokerUnreachableError:
            return
        if self._takes_all:
            reader.add({key: 0 for key in present if key not in reader.partitions})
