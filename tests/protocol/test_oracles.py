"""Every message in every version, against two foreign codecs: the same bytes for the same values, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import KioIndexError

from skylog.protocol.schema import Message
from tests.proof import proof

from .oracles import (
    kafka_python_class,
    kio_class,
    written_by_kafka_python,
    written_by_kio,
)
from .strategies import MESSAGE_VERSIONS, ids_of, messages

# What an oracle does not have, or gets wrong; the tests below fail when this stops being true.
REMOVED_IN_KAFKA_4: set[tuple[str, int]] = {
    (f"{api}{kind}", 0)
    for api in ("DescribeConfigs", "DescribeLogDirs", "WriteTxnMarkers")
    for kind in ("Request", "Response")
}
OF_SKYLOG: set[tuple[str, int]] = {
    (f"{api}Mirrors{kind}", 0) for api in ("Describe", "Alter") for kind in ("Request", "Response")
}
MISSING_IN_KIO: set[tuple[str, int]] = REMOVED_IN_KAFKA_4 | OF_SKYLOG
MISSING_IN_KAFKA_PYTHON: set[tuple[str, int]] = (REMOVED_IN_KAFKA_4 | OF_SKYLOG) | {
    (f"ConsumerGroup{api}{kind}", version)
    for api in ("Heartbeat", "Describe")
    for kind in ("Request", "Response")
    for version in (0, 1)
}

each_message_version = pytest.mark.parametrize("case", MESSAGE_VERSIONS, ids=ids_of)
a_few_examples = settings(
    max_examples=proof(50, 6),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@each_message_version
@a_few_examples
@given(data=st.data())
def test_our_bytes_are_those_of_both_oracles_and_read_back_to_the_same_values(
    case: tuple[type[Message], int], data: Any
) -> None:
    cls, version = case
    message = data.draw(messages(cls, version))  # type: ignore[arg-type] # mypy takes __hash__ of a class for that of its objects
    ours = message.write(version)
    if (cls.__name__, version) not in MISSING_IN_KIO:
        assert ours == written_by_kio(message, version)
    if (cls.__name__, version) not in MISSING_IN_KAFKA_PYTHON:
        assert ours == written_by_kafka_python(message, version)
    assert cls.read(ours, version) == (message, len(ours))
    assert cls.read(memoryview(b"?" + ours + b"?"), version, 1) == (message, len(ours) + 1)


def test_kio_has_every_version_except_those_listed() -> None:
    assert {
        (cls.__name__, version) for cls, version in MESSAGE_VERSIONS if not _kio_has(cls, version)
    } == MISSING_IN_KIO


def _kio_has(cls: type[Message], version: int) -> bool:
    try:
        kio_class(cls, version)
    except KioIndexError:
        return False
    return True


def test_kafka_python_has_every_version_except_those_listed() -> None:
    missing = {(cls.__name__, version) for cls, version in MESSAGE_VERSIONS if not _kafka_python_has(cls, version)}
    assert missing == MISSING_IN_KAFKA_PYTHON


def _kafka_python_has(cls: type[Message], version: int) -> bool:
    try:
        low, high = kafka_python_class(cls).valid_versions
    except LookupError:
        return False
    return bool(low <= version <= high)
