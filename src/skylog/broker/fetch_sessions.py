"""Fetch sessions (KIP-227): the broker remembers the partitions of a consumer, so that only changes are sent.

A request of epoch 0 lists all partitions and opens a session. Its response has the session's id, or 0 if there is no
room for another session. The requests that follow, of epochs 1, 2, …, list the partitions that are new, have another
offset, or are forgotten. Their responses list the partitions with new data. Epoch -1 closes the session. An unexpected
id or epoch is an error, after which clients send a full request again.

Pure: the caller passes the time. A session does not belong to a connection. If it is not closed, it is kept until
another session needs the room.
"""

from __future__ import annotations

import random
from itertools import groupby
from typing import Final
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.model import MAX_TOPIC_NAME_LENGTH
from skylog.protocol.fetch_hot import FetchCall, PartitionAnswer, PartitionCall, TopicAnswers

EVICT_AFTER_S: Final = 120.0
MAX_ROWS: Final = 5000
"""Partitions of a session. A consumer with more sends full requests, which yield to other requests."""
MAX_ROWS_OF_ALL: Final = 200_000
"""Partitions of all sessions together. Each takes a few hundred bytes."""

FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF
_UNKNOWN: Final = (-1, -1)

Key = tuple[str | UUID, int]
"""Name or id of the topic, and the partition index."""


class FetchSession:
    """The partitions of a consumer in the order in which they are read, and the state last sent for each."""

    __slots__ = ("_known", "_rows", "epoch", "last_used_s", "session_id", "uses_ids")

    def __init__(self, session_id: int, uses_ids: bool, now_s: float) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        self.last_used_s = now_s
        self._rows: dict[Key, PartitionCall] = {}
        self._known: dict[Key, tuple[int, int]] = {}  # high watermark and log start offset that were sent last

    def __len__(self) -> int:
        return len(self._rows)

    def update(self, call: FetchCall) -> None:
        """Apply the changes in a request."""
        for topic, rows in call.topics:
            for row in rows:
                self._rows[topic, row.partition] = row
        for topic, numbers in call.forgotten:
            for number in numbers:
                self._rows.pop((topic, number), None)
                self._known.pop((topic, number), None)

    def topics(self) -> list[tuple[str | UUID, list[PartitionCall]]]:
        """Return all partitions, in the form of a full request."""
        grouped = groupby(self._rows.items(), key=lambda item: item[0][0])
        return [(topic, [row for _, row in items]) for topic, items in grouped]

    def changed(self, topics: TopicAnswers) -> TopicAnswers:
        """Return the answers that differ from the last ones. Move partitions with records to the end of the order."""
        changed = [(topic, [each for each in answers if self._note_change(topic, each)]) for topic, answers in topics]
        for topic, answers in changed:
            for answer in answers:
                key = topic, answer.partition
                if answer.records_length and key in self._rows:
                    self._rows[key] = self._rows.pop(key)
        return [(topic, answers) for topic, answers in changed if answers]

    def _note_change(self, topic: str | UUID, answer: PartitionAnswer) -> bool:
        """Remember the state in an answer. Return whether the answer must be sent."""
        key = topic, answer.partition
        state = _UNKNOWN if answer.error_code else (answer.high_watermark, answer.log_start_offset)
        is_new = self._known.get(key, _UNKNOWN) != state
        self._known[key] = state
        return is_new or answer.error_code != 0 or answer.records_length > 0 or answer.preferred_read_replica >= 0


class FetchSessions:
    """The sessions of a broker, at most `slots`."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._row_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, call: FetchCall, answers: TopicAnswers, uses_ids: bool, now_s: float) -> int:
        """Open a session for a full request and its answers. Return its id, or 0 if there is no room."""
        row_count = sum(len(rows) for _, rows in call.topics)
        if not 0 < row_count <= MAX_ROWS or _has_endless_name(call) or not self._make_room(row_count, now_s):
            return 0
        session_id = random.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = random.randint(1, 0x7FFFFFFF)
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, now_s)
        self._update(session, call)
        session.changed(answers)
        return session_id

    def _update(self, session: FetchSession, call: FetchCall) -> None:
        self._row_count -= len(session)
        session.update(call)
        self._row_count += len(session)

    def _make_room(self, row_count: int, now_s: float) -> bool:
        """Evict the least recently used sessions that are old enough. Return whether another session fits."""
        while len(self._sessions) >= self._slots or self._row_count + row_count > MAX_ROWS_OF_ALL:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_s - oldest.last_used_s < EVICT_AFTER_S:
                return False
            self.close(oldest.session_id)
        return True

    def advance(self, call: FetchCall, uses_ids: bool, now_s: float) -> FetchSession:
        """Apply an incremental request to its session, and return the session. Raises KafkaError."""
        session = self._sessions.get(call.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != call.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, call)
        if len(session) > MAX_ROWS or self._row_count > MAX_ROWS_OF_ALL or _has_endless_name(call):
            self.close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.last_used_s = now_s
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._row_count -= len(session)


def _has_endless_name(call: FetchCall) -> bool:
    """Whether a name is longer than any topic's. A session would keep it."""
    return any(isinstance(topic, str) and len(topic) > MAX_TOPIC_NAME_LENGTH for topic, _ in call.topics)
