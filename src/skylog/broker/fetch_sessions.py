"""Fetch sessions (KIP-227): what a consumer has asked for is remembered, so that it only says and hears what changes.

A request of epoch 0 asks for everything and opens a session; its answer carries the session's id, or 0 where there is
no room for another. The requests that follow, of epochs 1, 2, …, name partitions that are new, have another offset or
are no longer wanted; the answers have those partitions that have something new. Epoch -1 closes the session. An id or
epoch that is not the expected one is an error, upon which clients begin anew with a full request.

Pure: time is handed in. Sessions belong to no connection; one that is not closed lives until its place is needed.
"""

from __future__ import annotations

import random
from itertools import groupby
from typing import Final
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.fetch_hot import FetchCall, PartitionAnswer, PartitionCall, TopicAnswers

EVICT_AFTER_S: Final = 120.0
MAX_ROWS: Final = 5000
"""A consumer with more partitions sends full requests, which are handled in turns with others' work."""
MAX_ROWS_OF_ALL: Final = 200_000
"""What all sessions together may remember: a few hundred bytes each."""

FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF
_UNKNOWN: Final = (-1, -1)

Key = tuple[str | UUID, int]
"""Name or id of the topic, and the partition's number."""


class FetchSession:
    """The partitions of one consumer in the order in which they are read, and what it knows of them."""

    __slots__ = ("_known", "_rows", "epoch", "last_used_s", "session_id", "uses_ids")

    def __init__(self, session_id: int, uses_ids: bool, now_s: float) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        self.last_used_s = now_s
        self._rows: dict[Key, PartitionCall] = {}
        self._known: dict[Key, tuple[int, int]] = {}  # high watermark and log start offset that were last told

    def __len__(self) -> int:
        return len(self._rows)

    def update(self, call: FetchCall) -> None:
        """Take in what a request says."""
        for topic, rows in call.topics:
            for row in rows:
                self._rows[topic, row.partition] = row
        for topic, numbers in call.forgotten:
            for number in numbers:
                self._rows.pop((topic, number), None)
                self._known.pop((topic, number), None)

    def topics(self) -> list[tuple[str | UUID, list[PartitionCall]]]:
        """All partitions, as a full request would name them."""
        grouped = groupby(self._rows.items(), key=lambda item: item[0][0])
        return [(topic, [row for _, row in items]) for topic, items in grouped]

    def changed(self, topics: TopicAnswers) -> TopicAnswers:
        """Those answers that tell the consumer something. Partitions with records are read last the next time."""
        told = [(topic, [answer for answer in answers if self._tells(topic, answer)]) for topic, answers in topics]
        for topic, answers in told:
            for answer in answers:
                key = topic, answer.partition
                if answer.records_length and key in self._rows:
                    self._rows[key] = self._rows.pop(key)
        return [(topic, answers) for topic, answers in told if answers]

    def _tells(self, topic: str | UUID, answer: PartitionAnswer) -> bool:
        key = topic, answer.partition
        told = _UNKNOWN if answer.error_code else (answer.high_watermark, answer.log_start_offset)
        is_new = self._known.get(key, _UNKNOWN) != told
        self._known[key] = told
        return is_new or answer.error_code != 0 or answer.records_length > 0


class FetchSessions:
    """The sessions of a broker, at most `slots`."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, call: FetchCall, answers: TopicAnswers, uses_ids: bool, now_s: float) -> int:
        """A session for a full request that is answered with `answers`; its id, or 0 where there is no room."""
        row_count = sum(len(rows) for _, rows in call.topics)
        if not 0 < row_count <= MAX_ROWS or not self._make_room(row_count, now_s):
            return 0
        session_id = random.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = random.randint(1, 0x7FFFFFFF)
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, now_s)
        session.update(call)
        session.changed(answers)
        return session_id

    def _make_room(self, row_count: int, now_s: float) -> bool:
        """Whether another session fits; the least recently used ones go, once they are old enough."""
        while (
            len(self._sessions) >= self._slots or sum(map(len, self._sessions.values())) + row_count > MAX_ROWS_OF_ALL
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_s - oldest.last_used_s < EVICT_AFTER_S:
                return False
            del self._sessions[oldest.session_id]
        return True

    def advance(self, call: FetchCall, uses_ids: bool, now_s: float) -> FetchSession:
        """The session of an incremental request, which has taken in what the request says. Raises KafkaError."""
        session = self._sessions.get(call.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != call.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(call)
        if len(session) > MAX_ROWS:
            self.close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.last_used_s = now_s
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
