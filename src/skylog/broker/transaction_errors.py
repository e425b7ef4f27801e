"""Errors of transactions in the form that a version of an API allows (KIP-588)."""

from __future__ import annotations

from skylog.errors import ErrorCode, KafkaError


def fencing_code(error: KafkaError, version: int, *, fenced_from: int) -> ErrorCode:
    """Return the code of an error. Versions before `fenced_from` have INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
