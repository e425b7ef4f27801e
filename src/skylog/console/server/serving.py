"""Runs the console's application with uvicorn."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

import uvicorn

from skylog.console.app import create_app
from skylog.console.cluster.parent_broker import ParentBroker
from skylog.console.settings import Settings

logger = logging.getLogger(__name__)

STOP_GRACE_S: Final = 2


async def serve(settings: Settings, listener: socket.socket, broker: ParentBroker | None = None) -> None:
    """Serve until SIGTERM, Ctrl-C, or the end of the parent broker."""
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
    ending = asyncio.create_task(_stop_with(broker, server)) if broker is not None else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if ending is not None:
            ending.cancel()


async def _stop_with(broker: ParentBroker, server: uvicorn.Server) -> None:
    await broker.ended()
    logger.info("the broker has stopped; stopping its console")
    server.should_exit = True
