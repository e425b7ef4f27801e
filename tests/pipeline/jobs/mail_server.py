"""A real SMTP server on loopback that keeps what it accepts, and can require TLS and a login."""

from __future__ import annotations

import asyncio
import email
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from email.message import EmailMessage
from pathlib import Path
from threading import Thread
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.certificate import write_certificate

USER, PASSWORD = "ada", "secret"


class Mailbox:
    """What the server has accepted. `responses` replace the acceptance of next mails, `refusals` that of commands."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.responses: list[str] = []
        self.unknown_addresses: set[str] = set()
        self.refusals: dict[str, str] = {}

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if "MAIL" in self.refusals:
            return self.refusals["MAIL"]
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if address in self.unknown_addresses:
            return "550 5.1.1 no such user"
        if "RCPT" in self.refusals:
            return self.refusals["RCPT"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.responses:
            return self.responses.pop(0)
        self.received.extend((address, envelope.content) for address in envelope.rcpt_tos)
        return "250 accepted"

    def addresses(self) -> list[str]:
        return [address for address, _ in self.received]

    def mails(self) -> list[EmailMessage]:
        found = [email.message_from_bytes(content, policy=policy.default) for _, content in self.received]
        return [mail for mail in found if isinstance(mail, EmailMessage)]


class _Server(SMTP):
    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        refusal = self.event_handler.refusals.get("DATA")
        await (super().smtp_DATA(arg) if refusal is None else self.push(refusal))


@contextmanager
def mail_server(mailbox: Mailbox, **settings: Any) -> Iterator[int]:
    """Run the server. The value is its port."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="mail-server", daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await loop.create_server(lambda: _Server(mailbox, loop=loop, **settings), "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def secured(directory: Path) -> dict[str, Any]:
    """Settings of a server that requires STARTTLS and a login. The certificate to trust is `directory/ca.pem`."""
    context = write_certificate(directory)

    def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        is_right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False)

    return {"tls_context": context, "require_starttls": True, "auth_required": True, "authenticator": check}
