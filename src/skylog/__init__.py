"""skylog: a durable, replicated commit log that speaks the Apache Kafka protocol.

What applications use is imported from here, when it is asked for: a broker needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skylog.client import (
        Admin,
        AsyncConsumer,
        AsyncProducer,
        Consumer,
        ConsumerGroups,
        Message,
        Producer,
        SimpleConsumer,
        message_streams,
    )

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerGroups",
    "Message",
    "Producer",
    "SimpleConsumer",
    "__version__",
    "message_streams",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'skylog' has no attribute '{name}'")
    from skylog import client

    return getattr(client, name)
