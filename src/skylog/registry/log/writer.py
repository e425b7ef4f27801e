"""Writes to the topic in transactions, under a transactional id that all registries of a topic share.

Opening a writer fences the one before: the coordinator aborts its open transaction, and rejects everything that it
sends afterwards. So between two openings only one registry writes. One that has read to the end after it has opened its
writer knows every record that counts, and can give the next id.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException, Message, Producer

from skylog.client import Connection
from skylog.errors import ErrorCode, SkylogError
from skylog.registry.records import Record

logger = logging.getLogger(__name__)

OPEN_S: Final = 10.0
COMMIT_S: Final = 10.0
ATTEMPT_S: Final = 2.0
MAX_RECORD_BYTES: Final = 1_000_000
_SETTINGS: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.max.bytes": MAX_RECORD_BYTES,
    "transaction.timeout.ms": 15_000,
}


class NotWrittenError(SkylogError):
    """The records were not written, and never will be."""


class RecordTooLargeError(NotWrittenError):
    """A record is larger than the topic allows."""


class OutcomeUnknownError(SkylogError):
    """The records were written or not: read the topic, after another writer was opened."""


class Writer:
    """One producer. Blocks; use it from one thread at a time. After an error, open another one."""

    def __init__(self, connection: Connection, topic: str, transactional_id: str) -> None:
        self._topic = topic
        self._producer: Producer = connection.producer({**_SETTINGS, "transactional.id": transactional_id})

    def open(self) -> None:
        """Fence all writers that were opened before. Raises KafkaException."""
        self._producer.init_transactions(OPEN_S)

    def append(self, records: Sequence[Record]) -> int:
        """Write records in one transaction. Return the offset behind the last of them."""
        delivered: list[int] = []

        def note(error: LibraryError | None, message: Message) -> None:
            if error is None:
                delivered.append(message.offset() or 0)

        try:
            self._producer.begin_transaction()
            for record in records:
                self._producer.produce(self._topic, record.value, record.key, partition=0, on_delivery=note)
        except KafkaException as error:
            self._abort()
            raise _not_written(error) from error
        self._commit()
        self._serve_callbacks()
        if len(delivered) != len(records):
            raise OutcomeUnknownError("the cluster committed the records, but their offsets are not known")
        return max(delivered) + 1

    def _commit(self) -> None:
        deadline = time.monotonic() + COMMIT_S
        while True:
            try:
                self._producer.commit_transaction(ATTEMPT_S)
                return
            except KafkaException as error:
                cause = error.args[0]
                if cause.txn_requires_abort():
                    self._abort()
                    raise _not_written(error) from error
                if not cause.retriable() or time.monotonic() >= deadline:
                    raise OutcomeUnknownError(cause.str()) from error

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(ATTEMPT_S)
        except KafkaException:
            return  # it is aborted by the next writer that is opened, or when it times out

    def close(self) -> None:
        """Forget the records that are queued. An open transaction is aborted by the next writer."""
        self._producer.purge()
        self._serve_callbacks()

    def _serve_callbacks(self) -> None:
        try:
            self._producer.poll(0)
        except KafkaException as error:  # librdkafka tells here, too, that another writer fenced this one
            logger.info("this writer ends: %s", error.args[0].str())


def _not_written(error: KafkaException) -> NotWrittenError:
    cause = error.args[0]
    if cause.code() in (LibraryError.MSG_SIZE_TOO_LARGE, int(ErrorCode.RECORD_LIST_TOO_LARGE)):
        return RecordTooLargeError(cause.str())
    return NotWrittenError(cause.str())
