"""What `skylog produce` says of a producer that librdkafka has given up."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException

from skylog.cli.produce.sender import Sender
from skylog.client import Connection
from skylog.errors import ErrorCode, SkylogError


def flush_like_confluent_kafka(reason: BaseException | None) -> int:
    """Fails like `flush` if a delivery report comes while the exception of a fatal error is pending."""
    raise SystemError("<built-in method flush> returned NULL without setting an exception") from reason


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            KafkaException(LibraryError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no id", fatal=True)),
            "topic 'letters': this user may not write to it, ",
        ),
        (None, "topic 'letters': a fatal error; run the command again to see its reason"),
    ],
)
def test_a_fatal_error_is_explained_though_its_exception_was_lost(
    skylog_bootstrap: str, reason: BaseException | None, text: str
) -> None:
    sender = Sender(Connection(skylog_bootstrap), "letters", {})
    with pytest.raises(SkylogError) as caught:
        sender._wait_for(lambda _: flush_like_confluent_kafka(reason), 1)
    assert str(caught.value).startswith(text)
