"""A broker behind TLS: a gateway on a port of its own, which the broker advertises."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator

from skylog.testing import BrokerProcess
from skylog.testing.loop_thread import LoopThread


@contextlib.contextmanager
def broker_behind_tls(context: ssl.SSLContext) -> Iterator[str]:
    """Return the address of the gateway."""
    target: list[int] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", target[0])
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    thread = LoopThread("tls-gateway")
    server = thread.run(_listen(forward, context))
    port = server.sockets[0].getsockname()[1]
    try:
        with BrokerProcess(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as broker:
            target.append(broker.port)
            yield f"127.0.0.1:{port}"
    finally:
        thread.call(server.close)
        thread.close()


async def _listen(forward: object, context: ssl.SSLContext) -> asyncio.Server:
    return await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)  # type: ignore[arg-type]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other end is gone, and so is this one
    finally:
        writer.close()
