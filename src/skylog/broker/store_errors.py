"""Errors of the metadata store, as clients understand them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skylog.cluster import SessionExpiredError, UnknownOutcomeError
from skylog.errors import ErrorCode, KafkaError


@contextmanager
def as_kafka_errors() -> Iterator[None]:
    """Raise the end of this broker's session as KafkaError. Clients repeat the request, here or elsewhere."""
    try:
        yield
    except UnknownOutcomeError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"it is not known whether this was done: {error}") from error
    except SessionExpiredError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"this broker is not part of the cluster now: {error}") from error
