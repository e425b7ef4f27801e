"""Web servers for real requests, each in a thread of this process on its own port."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import uvicorn

from tests.broker.process import until


@contextmanager
def serve_asgi(app: Any) -> Iterator[httpx.Client]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical"))
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        until(lambda: server.started, "uvicorn")
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)


class _ThreadingServer(socketserver.ThreadingMixIn, WSGIServer):
    pass


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name that the base class has
        pass

    def get_stderr(self) -> Any:
        return open("/dev/null", "w")


@contextmanager
def serve_wsgi(app: Any) -> Iterator[httpx.Client]:
    with make_server("127.0.0.1", 0, app, _ThreadingServer, _QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, name="wsgiref")
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", timeout=10) as client:
                yield client
        finally:
            server.shutdown()
            thread.join(20)
