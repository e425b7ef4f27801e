"""Serializers and deserializers: pydantic models, and messages and errors that travel between processes."""

from __future__ import annotations

import pickle
from itertools import islice

import pytest
from pydantic import BaseModel

from skylog import (
    BrokerUnreachableError,
    Consumer,
    DeliveryError,
    DeserializeError,
    OffsetOutOfRangeError,
    Producer,
    SerializeError,
    SkylogError,
    TopicNotFoundError,
    from_json,
    from_model,
    to_json,
    to_model,
)
from skylog.testing import consume


class Order(BaseModel):
    id: int
    tags: tuple[str, ...] = ()


def test_models_are_sent_and_read(skylog_bootstrap: str, skylog_topic: str) -> None:
    orders = [Order(id=1), Order(id=2, tags=("new",))]
    with Producer(skylog_bootstrap) as producer:
        for order in orders:
            producer.send(skylog_topic, order)
        producer.send(skylog_topic, {"id": "x"})
        producer.send(skylog_topic)
    with Consumer(skylog_topic, skylog_topic, skylog_bootstrap, deserializer=from_model(Order)) as consumer:
        messages = list(islice(consumer, 4))
    assert [message.value for message in messages[:2]] == orders
    with pytest.raises(DeserializeError, match="at offset 2 cannot be read"):
        messages[2].value  # noqa: B018
    assert messages[3].value is None


def test_models_inside_of_other_values_are_sent_too() -> None:
    assert to_json({"orders": [Order(id=1, tags=("a",))]}) == b'{"orders":[{"id":1,"tags":["a"]}]}'
    with pytest.raises(SerializeError, match="cannot be sent"):
        to_json({"x": object()})


def test_a_serializer_of_one_model_takes_no_other() -> None:
    assert to_model(Order)(Order(id=1)) == b'{"id":1,"tags":[]}'
    with pytest.raises(SerializeError, match="takes Order only"):
        to_model(Order)({"id": 1})  # type: ignore[arg-type]


def test_messages_can_be_pickled(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        producer.send(skylog_topic, {"n": 1}, "k", headers=[("h", b"1"), ("h", None)], timestamp_ms=12_345)
        producer.send(skylog_topic)
    bare = consume(skylog_bootstrap, skylog_topic, count=2)
    for message, again in zip(bare, pickle.loads(pickle.dumps(bare)), strict=True):
        names = ("topic", "partition", "offset", "timestamp_ms", "time", "key", "value", "headers", "topic_partition")
        assert [getattr(again, name) for name in names] == [getattr(message, name) for name in names]
        assert repr(again) == repr(message)
    with Consumer(skylog_topic, skylog_topic, skylog_bootstrap, deserializer=from_json) as consumer:
        parsed = pickle.loads(pickle.dumps(next(iter(consumer))))
    assert parsed.value == parsed.json() == {"n": 1}


@pytest.mark.parametrize(
    "error",
    [
        DeserializeError("t", 1, 2, "no JSON"),
        DeliveryError("t", None, "away", may_be_stored=True),
        OffsetOutOfRangeError("t", 1, 2, 3, 4),
        TopicNotFoundError("orders", ["order"]),
        BrokerUnreachableError("a:1", "refused"),
    ],
)
def test_errors_can_be_pickled(error: SkylogError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
