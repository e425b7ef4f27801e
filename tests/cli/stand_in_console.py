"""A minimal console for tests of `skylog serve`: serves a socket and sends requests to its broker, both by descriptor.

A visitor sends a word on a line and gets a line back. `pid` returns the process id, `die` exits. `metrics`, `brief`,
`health` and any unknown word are sent to the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket

from skylog.console.cluster.parent_broker import ParentBroker
from skylog.errors import SkylogError
from skylog.metric import to_document


async def answer(word: str, beside: ParentBroker) -> object:
    match word:
        case "die":
            os._exit(3)
        case "pid":
            return os.getpid()
        case "metrics":
            return to_document(await beside.metrics())
        case "brief":
            return to_document(await beside.metrics(brief=True))
        case "health":
            return await beside.health()
        case _:
            try:
                return (await beside._request(word, 10)).end.result()
            except SkylogError as error:
                return str(error)


async def main(listening: socket.socket, broker_fd: int) -> None:
    beside = ParentBroker(broker_fd)

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word = (await reader.readline()).decode().strip()
        writer.write(json.dumps(await answer(word, beside)).encode() + b"\n")
        await writer.drain()
        writer.close()

    await asyncio.start_server(visit, sock=listening)
    await beside.ended()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    parser.add_argument("--broker-fd", type=int)
    given = parser.parse_args()
    asyncio.run(main(socket.socket(fileno=given.fd), given.broker_fd))
