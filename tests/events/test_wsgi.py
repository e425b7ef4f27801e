"""The WSGI middleware with Flask, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask, stream_with_context
from flask.typing import ResponseReturnValue

from skylog.events import EventLog
from skylog.events.wsgi import EventMiddleware
from tests.broker.process import BrokerProcess, until

from .conftest import names_in
from .fake_producer import FakeProducer
from .servers import serve_wsgi


def application(events: EventLog) -> Flask:
    app = Flask("blog")
    app.wsgi_app = EventMiddleware(app.wsgi_app, events)  # type: ignore[method-assign] # as Flask documents it

    @app.get("/show/<number>")
    def show(number: str) -> ResponseReturnValue:
        for step in range(5):
            events.fire(f"{number}.{step}")
        return "shown"

    @app.get("/fail")
    def fail() -> ResponseReturnValue:
        events.fire("failing")
        raise RuntimeError("a bug")

    @app.get("/stream")
    def stream() -> ResponseReturnValue:
        @stream_with_context
        def parts() -> Iterator[str]:
            for part in ("first", "second"):
                events.fire(part)
                yield part

        events.fire("start")
        return parts()  # type: ignore[call-arg] # as Flask's documentation has it

    return app


def test_the_events_of_requests_arrive_and_do_not_mix(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    with serve_wsgi(application(events)) as client, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: client.get(f"/show/{number}").raise_for_status(), range(20)))
    assert events.flush() == 0
    names = names_in(broker.bootstrap, topic)
    assert len(names) == 100
    for number in range(20):
        assert [name for name in names if name.startswith(f"{number}.")] == [f"{number}.{step}" for step in range(5)]


def test_a_view_that_fails_hands_its_events_over(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    with serve_wsgi(application(events)) as client:
        assert client.get("/fail").status_code == 500
    assert events.flush() == 0
    assert names_in(broker.bootstrap, topic) == ["failing"]


def test_an_application_that_raises_hands_its_events_over() -> None:
    producer = FakeProducer()
    app = application(EventLog(producer))
    app.testing = True
    with serve_wsgi(app) as client:
        assert client.get("/fail").status_code == 500
        assert producer.names == ["failing"]


def test_the_events_of_a_stream_are_handed_over_while_it_is_sent() -> None:
    producer = FakeProducer()
    events = EventLog(producer)
    response = EventMiddleware(application(events).wsgi_app, events)
    with serve_wsgi(response) as client, client.stream("GET", "/stream") as stream:
        assert stream.read() == b"firstsecond"
    until(lambda: producer.names == ["start", "first", "second"], "the events of the stream")


def test_nothing_is_handed_over_before_the_response_is_closed() -> None:
    producer = FakeProducer()
    events = EventLog(producer)
    closed = []

    class Body(list[bytes]):
        def close(self) -> None:
            closed.append(True)
            events.fire("closing")

    def app(environ: object, start_response: object) -> Body:
        events.fire("called")
        return Body([b"one"])

    response = EventMiddleware(app, events)({}, None)  # type: ignore[arg-type] # the application does not use it
    parts = iter(response)
    assert next(parts) == b"one"
    assert producer.names == []
    assert next(parts, None) is None
    assert producer.names == ["called"]
    response.close()  # type: ignore[attr-defined] # what every server calls
    assert (closed, producer.names) == ([True], ["called", "closing"])
    events.fire("next")
    assert producer.names[-1] == "next"


@pytest.mark.parametrize("read", [0, 1])
def test_a_client_that_goes_away_costs_no_events(read: int) -> None:
    producer = FakeProducer()
    events = EventLog(producer)

    def app(environ: object, start_response: object) -> Iterator[bytes]:
        events.fire("called")
        return iter([b"one", b"two"])

    response = EventMiddleware(app, events)({}, None)  # type: ignore[arg-type] # the application does not use it
    for _, _part in zip(range(read), response, strict=False):
        pass
    response.close()  # type: ignore[attr-defined] # what every server calls
    assert producer.names == ["called"]
