"""A real SMTP server on loopback that keeps what it accepts, and can require TLS and a login."""

from __future__ import annotations

import asyncio
import datetime
import email
import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from email.message import EmailMessage
from pathlib import Path
from threading import Thread
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (directory / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "ca.pem", directory / "key.pem")

    def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        is_right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False)

    return {"tls_context": context, "require_starttls": True, "auth_required": True, "authenticator": check}
