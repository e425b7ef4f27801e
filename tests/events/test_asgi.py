"""The ASGI middleware under uvicorn, with Starlette and without."""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from skylog.events import EventLog
from skylog.events.asgi import EventMiddleware
from tests.broker.process import BrokerProcess, until
from tests.patience import patience

from .conftest import MakeEvents, names_in
from .fake_producer import FakeProducer
from .servers import serve_asgi


def application(events: EventLog) -> Starlette:
    async def show(request: Request) -> Response:
        number = request.path_params["number"]
        for step in range(5):
            events.fire(f"{number}.{step}", int(number))
            await asyncio.sleep(0)
        return PlainTextResponse("shown")

    def in_a_thread(request: Request) -> Response:
        events.fire("thread")
        return PlainTextResponse("done")

    async def fail(request: Request) -> Response:
        events.fire("failing")
        raise RuntimeError("a bug")

    async def unencodable(request: Request) -> Response:
        events.fire("odd", amount=1 << 64)
        return PlainTextResponse("fine")

    async def background(request: Request) -> Response:
        events.fire("answered")
        return PlainTextResponse("done", background=BackgroundTask(events.fire, "afterwards"))

    routes = [
        Route("/show/{number}", show),
        Route("/thread", in_a_thread),
        Route("/fail", fail),
        Route("/unencodable", unencodable),
        Route("/background", background),
    ]
    return Starlette(routes=routes, middleware=[Middleware(EventMiddleware, events=events)])


def test_the_events_of_a_request_arrive_in_order(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    with serve_asgi(application(events)) as client:
        assert client.get("/show/1").text == "shown"
        assert client.get("/thread").text == "done"
        assert events.flush() == 0
    assert names_in(broker.bootstrap, topic) == [*(f"1.{step}" for step in range(5)), "thread"]


def test_requests_at_the_same_time_do_not_mix(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    with serve_asgi(application(events)) as client, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: client.get(f"/show/{number}"), range(40)))
        assert events.flush() == 0
    names = names_in(broker.bootstrap, topic)
    assert len(names) == 200
    requests = [names[first : first + 5] for first in range(0, 200, 5)]
    for request in requests:
        number = request[0].partition(".")[0]
        assert request == [f"{number}.{step}" for step in range(5)]


def test_a_request_that_fails_hands_its_events_over(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    with serve_asgi(application(events)) as client:
        assert client.get("/fail").status_code == 500
        assert events.flush() == 0
    assert names_in(broker.bootstrap, topic) == ["failing"]


def test_an_event_that_cannot_be_encoded_does_not_fail_the_request(events: EventLog) -> None:
    with serve_asgi(application(events)) as client:
        assert client.get("/unencodable").text == "fine"
    assert events.stats().dropped["unencodable"] == 1


def test_events_of_a_background_task_are_not_lost() -> None:
    producer = FakeProducer()
    with serve_asgi(application(EventLog(producer))) as client:
        client.get("/background")
        until(lambda: producer.names == ["answered", "afterwards"], "the event of the background task")


def test_the_events_of_a_stream_are_handed_over_while_it_is_sent() -> None:
    producer = FakeProducer()
    events = EventLog(producer)

    async def stream(request: Request) -> Response:
        async def parts() -> AsyncIterator[str]:
            events.fire("first")
            yield "first"
            assert producer.names == ["first"]
            events.fire("second")
            yield "second"

        return StreamingResponse(parts())

    app = Starlette(routes=[Route("/", stream)], middleware=[Middleware(EventMiddleware, events=events)])
    with serve_asgi(app) as client:
        assert client.get("/").text == "firstsecond"
    assert producer.names == ["first", "second"]


def test_a_websocket_hands_over_each_event_as_it_is_fired() -> None:
    producer = FakeProducer()
    events = EventLog(producer)

    async def chat(scope: Any, receive: Any, send: Any) -> None:
        events.fire("said")
        assert producer.names == ["said"]

    asyncio.run(EventMiddleware(chat, events)({"type": "websocket"}, None, None))  # type: ignore[arg-type] # unused
    assert producer.names == ["said"]


def test_without_a_broker_requests_are_as_fast(make_events: MakeEvents, broker: BrokerProcess, tmp_path: Path) -> None:
    gone = BrokerProcess(tmp_path / "data").start()
    gone.kill()
    lonely = make_events(gone.bootstrap, {"queue.buffering.max.messages": 100, "message.timeout.ms": 3000})
    reachable = make_events(broker.bootstrap)
    with serve_asgi(application(reachable)) as client, serve_asgi(application(lonely)) as lonely_client:
        pairs = [(request_s(client), request_s(lonely_client)) for _ in range(100)]  # alternating
    assert lonely.stats().dropped["buffer_full"] > 0
    with_s, without_s = map(statistics.median, zip(*pairs, strict=True))
    assert without_s < 1.5 * with_s


def request_s(client: httpx.Client) -> float:
    began = time.perf_counter()
    assert client.get("/show/1").status_code == 200
    return time.perf_counter() - began


SERVER = """
import sys
import uvicorn
from skylog.client import Producer
from skylog.events import EventLog
from skylog.events.asgi import EventMiddleware

events = EventLog(
    Producer(sys.argv[1], config={"linger.ms": 60_000}), topic=sys.argv[2], flush_timeout_s=float(sys.argv[3])
)

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError("this application knows no lifespan")
    events.fire("page.view")
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

Server(uvicorn.Config(EventMiddleware(app, events), port=0, log_level="warning")).run()
"""


def test_a_stopping_server_sends_buffered_events(broker: BrokerProcess, topic: str) -> None:
    command = [sys.executable, "-c", SERVER, broker.bootstrap, topic, "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 204
        assert names_in(broker.bootstrap, topic) == []
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=30)
    assert names_in(broker.bootstrap, topic) == ["page.view"] * 3
    assert errors == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_stops_without_a_broker_says_what_it_loses_and_does_not_wait_twice(
    topic: str, number: signal.Signals
) -> None:
    """After SIGINT uvicorn runs the exit handlers too."""
    command = [sys.executable, "-c", SERVER, "127.0.0.1:1", topic, "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 204
        began = time.monotonic()
        server.send_signal(number)
        _, errors = server.communicate(timeout=60)
    assert f"events for topic {topic} that were not delivered within 1 s of closing: 3" in errors
    assert time.monotonic() - began < patience(15)


@pytest.mark.parametrize("is_received", [False, True])
def test_an_application_that_fails_at_its_start_is_not_covered_up(is_received: bool) -> None:
    """Without lifespan support an application raises; after it has received an event, it is an error."""
    sent = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if is_received:
            await receive()
        raise RuntimeError("no database")

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    served = EventMiddleware(app, EventLog(FakeProducer()))({"type": "lifespan"}, receive, send)
    if is_received:
        with pytest.raises(RuntimeError, match="no database"):
            asyncio.run(served)
        assert sent == []
    else:
        asyncio.run(served)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
