"""The work of `skylog tail`: from where to read, what to do at the end, and where to print it."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from skylog.cli.message_view import as_line, as_rich
from skylog.cli.output import note, stdout, write
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
from skylog.message_document import as_object
from skylog.model import TopicPartition
from skylog.printable import json_text

NOTICE_S: Final = 2.0
REFRESH_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: at the last messages unless one of these says otherwise."""

    from_beginning: bool
    offset: int | None
    timestamp_ms: int | None

    @property
    def is_given(self) -> bool:
        return self.from_beginning or self.offset is not None or self.timestamp_ms is not None


@dataclass(frozen=True, slots=True)
class Printer:
    """Puts messages on stdout. What is not decided is decided by whether that is a terminal."""

    json: bool
    meta: bool | None
    pretty: bool | None

    def show(self, messages: Iterable[Message]) -> None:
        terminal = stdout.is_terminal
        meta = terminal if self.meta is None else self.meta
        pretty = terminal if self.pretty is None else self.pretty
        if self.json:
            write("".join(f"{json_text(as_object(message))}\n" for message in messages))
        elif terminal:
            for message in messages:
                stdout.print(as_rich(message, meta=meta, pretty=pretty))
        else:
            write("".join(as_line(message, meta=meta, pretty=pretty) for message in messages))
        sys.stdout.flush()


class Following:
    """One topic, read by one command. `partitions` are those that were asked for; None means all, new ones too."""

    def __init__(self, connection: Connection, topic: str, partitions: list[int] | None, printer: Printer) -> None:
        self._connection = connection
        self._admin = Admin(connection)
        self._topic = topic
        self._takes_all = not partitions
        self._printer = printer
        self._ranges = self._admin.offset_ranges(self._choose(partitions))

    def show_last(self, count: int, *, follow: bool) -> None:
        """Print the last messages, then perhaps what comes after them."""
        if count:
            self._printer.show(read_last(self._connection, self._ranges, count))
        if follow:
            self._show({key: offsets.end_offset for key, offsets in self._ranges.items()}, None, follow=True)

    def show_from(self, start: Start, count: int | None, *, follow: bool) -> None:
        """Print from a start on, no more than `count` messages."""
        self._show(self._start_offsets(start), count, follow=follow)

    def _choose(self, partitions: list[int] | None) -> list[TopicPartition]:
        known = {each.partition: each for each in self._admin.describe_topic(self._topic).topic_partitions}
        for number in partitions or ():
            if number not in known:
                raise SkylogError(
                    f"topic '{self._topic}' has no partition {number}: it has {len(known)}, numbered from 0"
                )
        return [known[number] for number in sorted(set(partitions or known))]

    def _start_offsets(self, start: Start) -> dict[TopicPartition, int]:
        ranges = self._ranges
        if start.offset is not None:
            for key, offsets in ranges.items():
                if not offsets.start_offset <= start.offset <= offsets.end_offset:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"{key} holds the offsets from {offsets.start_offset} up to {offsets.end_offset}, "
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
        """What comes, for ever, saying when the broker goes; ends when nobody reads our output any more."""
        told = False
        output = select.poll()
        output.register(sys.stdout.fileno(), 0)
        refreshed = time.monotonic()
        while True:
            messages = reader.read()
            lost = reader.lost_s > NOTICE_S
            if lost and not told:
                reason = self._connection.down_reason
                note(f"{self._connection.bootstrap} cannot be reached ({reason}); waiting for it to come back")
            told = lost
            if not messages and output.poll(0):
                return
            yield messages
            if not lost and time.monotonic() - refreshed > REFRESH_S:
                self._refresh(reader)
                refreshed = time.monotonic()

    def _refresh(self, reader: PartitionReader) -> None:
        """Take in partitions that were added. Raises TopicNotFoundError if the topic is gone."""
        try:
            present = self._admin.describe_topic(self._topic).topic_partitions
        except BrokerUnreachableError:
            return
        if self._takes_all:
            reader.add({key: 0 for key in present if key not in reader.partitions})
