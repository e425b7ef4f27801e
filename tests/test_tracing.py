"""W3C trace context from a producer or an event to the handler of a message."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from skylog import ErrorPolicy, Message, Producer, StreamRunner
from skylog.console.messages.view import row
from skylog.events import EventLog
from skylog.testing import consume
from skylog.tracing import TraceParent, handling, trace_parent, with_current_span
from tests.present import present

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_trace_goes_from_the_producer_and_the_event_to_the_handler(
    skylog_bootstrap: str, skylog_topic: str, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("tests")
    producer = Producer(skylog_bootstrap)
    events = EventLog(producer, topic=skylog_topic)
    with tracer.start_as_current_span("request") as request:
        producer.send(skylog_topic, b"sent", headers={"own": "1"}, partition=0).result(20)
        events.fire("fired")
        assert producer.offer(f"{skylog_topic}.offered", b"offered")
    with events.request() as scope:
        events.fire("fired outside of the span")
        with tracer.start_as_current_span("another request"):
            scope.hand_over()
    producer.flush()
    sender = request.get_span_context()

    stored = consume(skylog_bootstrap, skylog_topic, count=3)
    [offered] = consume(skylog_bootstrap, f"{skylog_topic}.offered", count=1)
    assert trace_parent(offered.headers) == trace_parent(stored[0].headers)
    expected = TraceParent(f"{sender.trace_id:032x}", f"{sender.span_id:016x}", is_sampled=True)
    assert [trace_parent(message.headers) for message in stored] == [expected, expected, None]
    assert [name for name, _ in stored[0].headers] == ["own", "traceparent"]
    assert row(stored[0])["trace"] == {"trace_id": expected.trace_id, "span_id": expected.span_id}
    assert "trace" not in row(stored[2])

    def handle(message: Message) -> None:
        with tracer.start_as_current_span("inner"):
            pass
        if message.offset == 2:
            runner.stop()
        if message.offset == 0:
            raise ValueError("a bad message")

    spans.clear()
    policy = ErrorPolicy(retries=0, dead_letter_topic=f"{skylog_topic}.dead")
    runner = StreamRunner({skylog_topic: 1}, handle, skylog_topic, skylog_bootstrap, policy=policy)
    runner.run()
    outer = [span for span in spans.get_finished_spans() if span.name == f"process {skylog_topic}"]
    assert [present(span.context).trace_id == sender.trace_id for span in outer] == [True, True, False]
    assert present(outer[0].parent).span_id == sender.span_id
    assert [span.status.is_ok for span in outer] == [False, True, True]
    assert present(outer[1].attributes)["messaging.kafka.offset"] == 1
    inner = [span for span in spans.get_finished_spans() if span.name == "inner"]
    assert [present(span.parent).span_id for span in inner] == [present(span.context).span_id for span in outer]
    producer.close()


def test_a_trace_that_the_application_has_chosen_is_kept(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("tests").start_as_current_span("request"):
        assert with_current_span({"traceparent": PARENT}) == {"traceparent": PARENT}
        assert [name for name, _ in present(with_current_span([("a", b"1")]))] == ["a", "traceparent"]
    assert with_current_span(None) is None


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        (PARENT, True),
        (PARENT.replace("00-", "01-", 1) + "-more", True),
        (PARENT.replace("00-", "ff-", 1), False),
        (PARENT.upper(), False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        ("", False),
    ],
)
def test_a_header_that_is_no_trace_is_ignored(value: str, is_valid: bool) -> None:
    found = trace_parent([("other", b""), ("traceparent", None), ("traceparent", value.encode())])
    _, trace_id, span_id, _ = PARENT.split("-")
    assert found == (TraceParent(trace_id, span_id, is_sampled=True) if is_valid else None)


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from skylog import Producer
from skylog.tracing import IS_AVAILABLE, handling, with_current_span
assert not IS_AVAILABLE
assert with_current_span(None) is None
with handling(None):
    print("handled")
"""


def test_without_opentelemetry_nothing_is_added() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("handled\n", "")


def test_handling_is_for_any_message() -> None:
    class Anything:
        topic, partition, offset = "t", 0, 0
        headers = (("traceparent", PARENT.encode()),)

    with handling(Anything()):
        assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == PARENT.split("-")[1]
