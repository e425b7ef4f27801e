"""What lies in a partition, batch by batch, as a Fetch v4 over a bare socket returns it.

Clients hide whether a batch was stored with the codec and the producer id that they were told to use; some fall back
to uncompressed without a word. This looks at the batch headers themselves and shares no code with any client.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from .peer import CODECS

_FETCH_V4 = ">hhih4siiiibi h{topic}s iiqi"
# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp, producer id,
# producer epoch, base sequence, record count
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class StoredBatch:
    base_offset: int
    codec: str
    producer_id: int
    base_sequence: int
    record_count: int


def stored_batches(bootstrap: str, topic: str, partition: int) -> list[StoredBatch]:
    """Every batch of a small partition, from offset 0."""
    records = _fetch(bootstrap, topic, partition)
    batches = []
    position = 0
    while position < len(records):
        fields = _BATCH_HEADER.unpack_from(records, position)
        base_offset, length, _, magic, _, attributes, _, _, _, producer_id, _, base_sequence, record_count = fields
        assert magic == 2, f"batch with magic {magic} at offset {base_offset}"
        batches.append(StoredBatch(base_offset, CODECS[attributes & 7], producer_id, base_sequence, record_count))
        position += 12 + length
    return batches


def _fetch(bootstrap: str, topic: str, partition: int) -> bytes:
    """The records of a partition, from whichever broker leads it."""
    code = 0
    for address in bootstrap.split(","):
        code, records = _fetch_from(address, topic, partition)
        if code == 0:
            return records
    raise AssertionError(f"fetch of {topic}-{partition} answered error {code}")


def _fetch_from(address: str, topic: str, partition: int) -> tuple[int, bytes]:
    """The error code of one broker's answer, and the records."""
    name = topic.encode()
    limit = 8 << 20
    frame = struct.pack(
        _FETCH_V4.format(topic=len(name)),
        *(1, 4, 7, 4, b"bare", -1, 1000, 1, limit, 0, 1),
        *(len(name), name, 1, partition, 0, limit),
    )
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", stream.read(4))
        response = stream.read(size)
    position = 4 + 4 + 4 + 2 + len(name) + 4  # correlation id, throttle time, topic count, topic, partition count
    index, error, _, _, aborted_count = struct.unpack_from(">ihqqi", response, position)
    assert index == partition
    position += 26 + 16 * max(aborted_count, 0)
    (records_size,) = struct.unpack_from(">i", response, position)
    return error, response[position + 4 : position + 4 + max(records_size, 0)]


def assert_stored_with(codec: str, bootstrap: str, topic: str, partition: int) -> None:
    """The batches lie in the log with the codec that their producer was told to use.

    On a busy machine the first record may go alone, and librdkafka sends a batch that would not shrink as it is.
    """
    codecs = {batch.codec for batch in stored_batches(bootstrap, topic, partition)}
    assert codecs in ({codec}, {codec, "none"}), f"{codec} was asked for, {codecs} is stored"
