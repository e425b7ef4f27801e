"""Two clusters, west and east, for tests that mirror one into the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from skylog.client import Admin, Connection
from skylog.client.mirrors import MirrorAdmin, MirrorDescription
from skylog.records import BatchHeader, iterate_batches
from skylog.testing import wait_until

from ..raw import RawClient

PATIENCE_S = 30.0
_numbers = itertools.count()


def new_name(what: str = "topic") -> str:
    return f"{what}-{next(_numbers)}"


def mirrors(bootstrap: str) -> MirrorAdmin:
    return MirrorAdmin(Connection(bootstrap))


def admin(bootstrap: str) -> Admin:
    return Admin(Connection(bootstrap))


def caught_up(bootstrap: str, name: str, *topics: str, offset: int | None = None) -> MirrorDescription:
    """Wait until a mirror has copied its topics to the end, at least to an offset of each partition."""
    admin = mirrors(bootstrap)

    def is_done() -> MirrorDescription | None:
        found = admin.describe(name)
        rows = [each for each in found.partitions if not topics or each.topic in topics]
        is_complete = all(each.status == "mirroring" and not each.lag for each in rows)
        reached = offset is None or all((each.high_watermark or 0) >= offset for each in rows)
        return found if rows and is_complete and reached and not set(topics) - found.mirrored.keys() else None

    return wait_until(is_done, f"the mirror {name} to catch up", PATIENCE_S)


def batches(port: int, topic: str, partition: int = 0) -> list[bytes]:
    """Return the stored batches of a partition, without the field that is the broker's own: the leader epoch."""
    return [_without_epoch(data) for data in _read(port, topic, partition)]


def _read(port: int, topic: str, partition: int) -> Iterator[bytes]:
    with RawClient(port) as client:
        offset = client.list_offset(topic, -2, partition=partition).offset
        while True:
            answer = client.fetch(topic, offset, partition=partition)
            assert not answer.error_code, answer
            data = bytes(answer.records or b"")
            found = list(iterate_batches(data))
            if not found:
                return
            for position, header in found:
                yield data[position : position + header.size_bytes]
                offset = header.end_offset


def _without_epoch(data: bytes) -> bytes:
    header = BatchHeader.read(data)
    return header._replace(partition_leader_epoch=0).pack() + data[len(header.pack()) :]
