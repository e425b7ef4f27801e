"""Answers that are too long to be encoded on the event loop."""

from __future__ import annotations

import asyncio

from skylog.broker.api import Context
from skylog.protocol.schema import Message


class Encoded(Message):
    """A response whose body has been written already."""

    __slots__ = ("api_key", "body")

    api_key: int  # type: ignore[misc]  # of the message that was written

    def __init__(self, api_key: int, body: bytes) -> None:
        self.api_key = api_key
        self.body = body

    def write_into(self, out: bytearray, version: int) -> None:
        out += self.body


async def encoded(context: Context, response: Message) -> Encoded:
    """`response`, written by a thread: it takes the interpreter from the loop for a few milliseconds at a time."""
    loop = asyncio.get_running_loop()
    body = await loop.run_in_executor(context.broker.codec, response.write, context.version)
    return Encoded(response.api_key, body)
