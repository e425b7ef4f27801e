"""A network between a client and a server that can be cut, silenced, and made to lose answers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class Relay:
    """Forwards TCP connections to `server`, on an own port of 127.0.0.1.

        async with Relay("127.0.0.1:2181") as relay:
            session = await open_zookeeper(relay.address, …)
            relay.cut()

    `forwards_requests` and `forwards_answers` switch the directions off; what arrives meanwhile is lost.
    """

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._connections: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.forwards_requests = self.forwards_answers = True
        self._accepted = asyncio.Semaphore(0)
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    async def wait_for_connection(self) -> None:
        """Wait for the next connection that this method has not returned for."""
        await self._accepted.acquire()

    def cut(self) -> None:
        """Close all connections, and new ones at once."""
        self._is_cut = True
        for writer in self._connections:
            writer.transport.abort()

    def silence(self) -> None:
        """Lose everything on the present connections, which stay open. New ones work."""
        self._silent |= self._connections

    def mend(self) -> None:
        """Forward what comes on new connections, and on those that are not silent."""
        self._is_cut = False
        self.forwards_requests = self.forwards_answers = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        upstream_reader, upstream = await asyncio.open_connection(*self._server)
        self._connections |= {writer, upstream}
        self._accepted.release()
        self.connections += 1
        requests = asyncio.ensure_future(self._forward(reader, upstream, is_request=True))
        await self._forward(upstream_reader, writer, is_request=False)
        await requests
        self._connections -= {writer, upstream}

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                is_open = self.forwards_requests if is_request else self.forwards_answers
                if is_open and writer not in self._silent:
                    writer.write(data)
        writer.close()
