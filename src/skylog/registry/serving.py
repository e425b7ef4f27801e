"""Runs the registry's application with uvicorn."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from skylog.registry.registry import Registry
from skylog.registry.rest.app import create_app
from skylog.registry.settings import RegistrySettings
from skylog.web.listening import url_of

logger = logging.getLogger(__name__)

STOP_GRACE_S: Final = 3


def advertised_url(settings: RegistrySettings, listener: socket.socket) -> str:
    """Return the URL at which other registries reach this one."""
    if settings.advertised_url:
        return settings.advertised_url.rstrip("/")
    url, port = url_of(listener), listener.getsockname()[1]
    is_anywhere = listener.getsockname()[0] in ("0.0.0.0", "::")
    return f"http://{socket.getfqdn()}:{port}" if is_anywhere else url


async def serve(
    settings: RegistrySettings,
    listener: socket.socket,
    on_start: Callable[[], None],
    parent_fd: int | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises SkylogError if the registry cannot start.

    `on_start` is called when clients can connect. `parent_fd` is a socket that is closed when the parent has ended, in
    whatever way; then the registry ends too.
    """
    registry = Registry(settings, advertised_url(settings, listener))
    await registry.start()
    on_start()
    config = uvicorn.Config(
        create_app(registry),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_GRACE_S,
        timeout_keep_alive=30,
    )
    server = uvicorn.Server(config)
    if parent_fd is not None:
        asyncio.get_running_loop().add_reader(parent_fd, _stop, server, parent_fd)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)  # uvicorn raises them again when it has stopped, and the registry has to close
    try:
        await server.serve(sockets=[listener])
    finally:
        await registry.close()


def _stop(server: uvicorn.Server, parent_fd: int) -> None:
    asyncio.get_running_loop().remove_reader(parent_fd)
    logger.info("the broker has stopped; stopping its registry")
    server.should_exit = True


def _ignore(number: int, frame: object) -> None:
    """Do nothing."""
