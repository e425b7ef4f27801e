"""An attack of `stalls`: 1,000 logins a second with wrong SCRAM passwords, each on a new connection."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from benchmarks.stage import Stage, frame_of
from skylog.protocol.sasl_authenticate import SaslAuthenticateRequest
from skylog.protocol.sasl_handshake import SaslHandshakeRequest
from skylog.security.own_client import jaas_of

MECHANISM = "SCRAM-SHA-512"
USER = "admin"
RATE = 1000
SECONDS = 5.0
_PROOF_BYTES = 64
_NONCE = re.compile(rb"r=([^,]+),s=")


def wrong_logins(stage: Stage) -> Callable[[], dict[str, Any]]:
    """Log in with wrong passwords on a listener beside the one that others use."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stage.settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": jaas_of(MECHANISM, USER, "right"),
    }
    seconds = 1.0 if stage.quick else SECONDS

    def strike() -> dict[str, Any]:
        began = time.monotonic()
        refused = asyncio.run(_attack(port, seconds))
        return {"logins": refused, "logins_per_s": refused / (time.monotonic() - began)}

    return strike


async def _attack(port: int, seconds: float) -> int:
    """Begin `RATE` logins a second, and return how many were refused."""
    began, tasks = time.monotonic(), []
    for number in range(int(RATE * seconds)):
        await asyncio.sleep(max(began + number / RATE - time.monotonic(), 0))
        tasks.append(asyncio.create_task(_log_in(port)))
    return sum(await asyncio.gather(*tasks))


async def _log_in(port: int) -> bool:
    """Log in with a proof that is made up, and return whether that was refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        first = f"n,,n={USER},r={secrets.token_urlsafe(24)}".encode()
        writer.write(frame_of(SaslHandshakeRequest(mechanism=MECHANISM), 1))
        writer.write(frame_of(SaslAuthenticateRequest(auth_bytes=first), 2))
        await _answer(reader)
        found = _NONCE.search(await _answer(reader))
        if found is None:
            raise RuntimeError("the broker did not begin a SCRAM login")
        proof = base64.b64encode(secrets.token_bytes(_PROOF_BYTES))
        writer.write(frame_of(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=%b,p=%b" % (found[1], proof)), 2))
        return b"Authentication failed" in await _answer(reader)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)
