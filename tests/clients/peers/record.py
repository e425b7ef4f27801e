"""The record as every client must hand it back, in Python and as the JSON the drivers in other languages speak."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any


def _encode(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


@dataclass(frozen=True)
class Record:
    """One message; a None timestamp leaves the time to the producer.

    The offset tells where the record was found and takes no part in comparing.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset: int = field(default=-1, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "value": _encode(self.value),
            "key": _encode(self.key),
            "headers": [[name, _encode(value)] for name, value in self.headers],
            "timestamp": self.timestamp_ms,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        return cls(
            value=_decode(data["value"]),
            key=_decode(data["key"]),
            headers=tuple((name, _decode(value)) for name, value in data["headers"]),
            timestamp_ms=int(data["timestamp"]),
            offset=int(data["offset"]),
        )
