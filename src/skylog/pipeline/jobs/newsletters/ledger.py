"""The ledger of sent digests: a topic with one partition, whose order decides who may send which digest.

    sending   an attempt wants to send a digest. It may if it is the first, or takes over the one that is open
    sent      the server has accepted the mail
    rejected  the server has refused it for good
    failed    the server has not accepted the mail, and another attempt may follow
    unknown   it is not known whether the server has accepted the mail, and no other attempt follows

A sender appends `sending`, reads the topic up to its own record, and sends only if its attempt is then the open one. So
of two senders, one that was believed dead and its successor, one sends, and the log says which.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from skylog.client import Admin, Connection, PartitionReader, Producer
from skylog.model import TopicPartition
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.jobs.newsletters.mail import Digest

logger = logging.getLogger(__name__)

SUFFIX: Final = "__sent"
_DAY_MS: Final = 86_400_000
KEEP_DAYS: Final = 60
_PATIENCE_S: Final = 30.0
_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": str(KEEP_DAYS * _DAY_MS)}


class State(StrEnum):
    """See the module."""

    SENDING = "sending"
    SENT = "sent"
    REJECTED = "rejected"
    FAILED = "failed"
    UNKNOWN = "unknown"


_FINAL: Final = frozenset({State.SENT, State.REJECTED, State.UNKNOWN})


@dataclass
class Entry:
    """The state of a digest: the attempt that may send it, and how it has ended."""

    open: str | None = None
    final: State | None = None

    def apply(self, state: State, attempt: str, takes_over: str | None) -> None:
        if state in _FINAL:
            self.final = state
        elif state is State.FAILED:
            self.open = None if self.open == attempt else self.open
        elif self.open == takes_over:
            self.open = attempt


class Ledger:
    """The ledger of the digests in `topic`. Opening it reads it. Raises SkylogError."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic + SUFFIX
        cluster.ensure_topic(self.topic, 1, _CONFIGS)
        self._entries: defaultdict[str, Entry] = defaultdict(Entry)
        self._producer: Producer = cluster.producer({"linger.ms": 0, "acks": "all", "enable.idempotence": True})
        self._connection: Connection = cluster.connection()
        partition = TopicPartition(self.topic, 0)
        offsets = Admin(self._connection).offset_ranges([partition])[partition]
        self._reader = PartitionReader(self._connection, {partition: offsets.start_offset})
        self._next = offsets.start_offset
        self._read_to(offsets.end_offset)

    def entry(self, digest: Digest) -> Entry:
        """Return the state of the digest, as far as the ledger is read."""
        return self._entries[digest.key]

    def claim(self, digest: Digest, *, takes_over: str | None = None) -> str | None:
        """Ask for the right to send a digest. Return the attempt, or None if another one has it or it has ended."""
        attempt = uuid.uuid4().hex
        self._append(digest, State.SENDING, attempt, takes_over=takes_over)
        entry = self._entries[digest.key]
        return attempt if entry.open == attempt and entry.final is None else None

    def record(self, digest: Digest, state: State, attempt: str = "", reason: str = "") -> None:
        """Record how an attempt has ended. Returns when the record is stored."""
        self._append(digest, state, attempt, reason=reason)

    def _append(self, digest: Digest, state: State, attempt: str, **more: str | None) -> None:
        value = {"state": state, "attempt": attempt, "at_ms": time.time_ns() // 1_000_000, **more}
        delivery = self._producer.send(self.topic, json.dumps(value).encode(), digest.key, partition=0)
        self._producer.flush()
        self._read_to(delivery.result().offset + 1)

    def _read_to(self, end_offset: int) -> None:
        while self._next < end_offset:
            for message in self._reader.read():
                self._next = message.offset + 1
                self._take(message.key, message.value)
            if self._reader.lost_s > _PATIENCE_S:
                raise self._connection.unreachable()

    def _take(self, key: bytes | None, value: Any) -> None:
        try:
            fields = json.loads(value)
            entry = self._entries[(key or b"").decode()]
            entry.apply(State(fields["state"]), str(fields["attempt"]), fields.get("takes_over"))
        except (ValueError, KeyError, TypeError):
            logger.warning("%s has a record that is not of a ledger at offset %d", self.topic, self._next - 1)

    def close(self) -> None:
        self._reader.close()
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
