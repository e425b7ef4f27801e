"""Runs the console's application with uvicorn, on a socket of its own or on one that was handed to it."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

import uvicorn

from skylog.console.app import Broker, create_app
from skylog.console.settings import Settings
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

BACKLOG: Final = 128
STOP_GRACE_S: Final = 2


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SkylogError if the port is taken or the host is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SkylogError(f"cannot listen on {host}:{port}: {error.strerror or error}; is the port in use?") from error
    listener.listen(BACKLOG)
    return listener


async def serve(settings: Settings, listener: socket.socket, broker: Broker | None = None) -> None:
    """Until SIGTERM, Ctrl-C, or the end of the broker beside."""
    config = uvicorn.Config(
        create_app(settings, broker),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_GRACE_S,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = uvicorn.Server(config)
    ending = asyncio.create_task(_end_with(broker, server)) if broker is not None else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if ending is not None:
            ending.cancel()


async def _end_with(broker: Broker, server: uvicorn.Server) -> None:
    await broker.ended()
    logger.info("the broker has ended, and so does its console")
    server.should_exit = True
