"""W3C trace context in message headers. Needs opentelemetry-api (`pip install 'skylog[tracing]'`); without it nothing
is added and nothing is measured.

A producer adds the headers `traceparent` and `tracestate` of the current span to each message. `handling` continues the
trace where a message is processed:

    for message in consumer:
        with handling(message):
            store(message.json())       # spans that it starts belong to the trace of the sender

`StreamRunner` and `AsyncStreamRunner` do that for every call of their handler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
_PARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Header = tuple[str, bytes | None]
HeaderPairs = list[tuple[str, str | bytes | None]] | dict[str, str | bytes | None]


class TraceParent(NamedTuple):
    """The span that sent a message. The ids are hexadecimal digits."""

    trace_id: str
    span_id: str
    is_sampled: bool


class TracedMessage(Protocol):
    """What `handling` reads of a message."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def headers(self) -> Sequence[Header]: ...


def trace_parent(headers: Sequence[Header]) -> TraceParent | None:
    """Return the span that the header `traceparent` names; None without a valid one. Needs no other package."""
    for name, value in headers:
        if name == PARENT and value is not None and (match := _PARENT.fullmatch(value)):
            trace_id, span_id, flags = match[1].decode(), match[2].decode(), int(match[3], 16)
            if int(trace_id, 16) and int(span_id, 16):
                return TraceParent(trace_id, span_id, bool(flags & 1))
    return None


def current_headers() -> list[tuple[str, bytes]]:
    """Return the headers that name the current span; none if there is no span."""
    if not IS_AVAILABLE or not trace.get_current_span().get_span_context().is_valid:
        return []
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return [(name, value.encode()) for name, value in carrier.items()]


def with_current_span(headers: HeaderPairs | None) -> HeaderPairs | None:
    """Add the headers that name the current span, unless the message names one already."""
    added = current_headers()
    if not added:
        return headers
    own = list(headers.items()) if isinstance(headers, dict) else list(headers or ())
    return headers if any(name == PARENT for name, _ in own) else [*own, *added]


@contextmanager
def handling(message: TracedMessage) -> Iterator[None]:
    """Run the block in a span that continues the trace of the message. An exception is recorded in the span."""
    if not IS_AVAILABLE:
        yield
        return
    carrier = {name: value.decode(errors="replace") for name, value in message.headers if value is not None}
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.kafka.offset": message.offset,
    }
    with trace.get_tracer("skylog").start_as_current_span(
        f"process {message.topic}",
        context=TraceContextTextMapPropagator().extract(carrier),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ):
        yield
