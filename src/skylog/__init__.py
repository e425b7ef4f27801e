"""skylog: a durable commit log that speaks the Apache Kafka protocol.

Applications import the client API from here. It is loaded on first access, because a broker needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skylog.client import (
        Admin,
        AsyncConsumer,
        AsyncProducer,
        AsyncStreamRunner,
        BrokerUnreachableError,
        BufferFullError,
        ClusterAdmin,
        ConfigError,
        Consumer,
        ConsumerGroups,
        Delivery,
        DeliveryError,
        DeserializeError,
        ErrorPolicy,
        KafkaError,
        Message,
        MessageStream,
        MessageStreams,
        OffsetOutOfRangeError,
        Position,
        Producer,
        ProducerFencedError,
        SerializeError,
        SimpleConsumer,
        SkylogError,
        StreamRunner,
        TopicNotFoundError,
        TopicPartition,
        TransactionAbortedError,
        TransactionUnknownError,
        from_json,
        from_model,
        from_text,
        message_streams,
        to_json,
        to_model,
        to_text,
    )

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncStreamRunner",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClusterAdmin",
    "ConfigError",
    "Consumer",
    "ConsumerGroups",
    "Delivery",
    "DeliveryError",
    "DeserializeError",
    "ErrorPolicy",
    "KafkaError",
    "Message",
    "MessageStream",
    "MessageStreams",
    "OffsetOutOfRangeError",
    "Position",
    "Producer",
    "ProducerFencedError",
    "SerializeError",
    "SimpleConsumer",
    "SkylogError",
    "StreamRunner",
    "TopicNotFoundError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionUnknownError",
    "__version__",
    "from_json",
    "from_model",
    "from_text",
    "message_streams",
    "to_json",
    "to_model",
    "to_text",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'skylog' has no attribute '{name}'")
    from skylog import client

    return getattr(client, name)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
