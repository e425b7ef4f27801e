"""A connection to an SMTP server. A mail is submitted in two steps, because of the moment between them.

Until the line with the final dot, the server has accepted nothing, and must discard what it has if the connection ends
(RFC 5321, 4.1.1.4). After that line, only its response says whether it has accepted the mail. If the response is lost,
neither side can find out (RFC 1047).

A refusal for good is about the sender or about the mail. To MAIL and DATA, before the server knows the mail, it is
about the sender: every other mail would be refused, too. To RCPT it is about the
address, unless its code says otherwise.
"""

from __future__ import annotations

import re
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from enum import StrEnum
from typing import Final

from skylog.errors import ConfigError, SkylogError

TIMEOUT_S: Final = 60.0
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_DOT_STUFFING: Final = re.compile(rb"^\.", re.MULTILINE)
_PERMANENT: Final = 500
_LOGIN: Final = (530, 535)
_POLICY: Final = re.compile(rb"5\.7\.|(?!\d\.\d).*\brelay", re.IGNORECASE | re.DOTALL)
"""Responses to RCPT that say by RFC 3463, or in words, that the server does not relay mails of this sender."""


class Tls(StrEnum):
    """How the connection is encrypted: not at all, by the command STARTTLS, or from the start."""

    NONE = "none"
    STARTTLS = "starttls"
    IMPLICIT = "implicit"


class NotAcceptedError(SkylogError):
    """The server has certainly not accepted the mail. `is_permanent`: it never will.

    `is_policy`: by its policy, which may be about the address or about the sender.
    """

    def __init__(self, reason: str, *, is_permanent: bool, is_policy: bool = False) -> None:
        super().__init__(reason)
        self.is_permanent = is_permanent
        self.is_policy = is_policy


class SenderRefusedError(SkylogError):
    """The server refuses the sender, so it would refuse every mail. It has not accepted this one."""


class UnknownOutcomeError(SkylogError):
    """The connection ended after the final dot and before the response."""


@dataclass(frozen=True)
class SmtpServer:
    """How to reach a server. `ca_file` has the certificates to trust instead of the system's."""

    host: str = "127.0.0.1"
    port: int = 25
    tls: Tls = Tls.NONE
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = TIMEOUT_S

    def check(self) -> None:
        """Raise ConfigError if user and password are incomplete, or would be readable on the network."""
        if bool(self.user) != bool(self.password):
            raise ConfigError("set both the user and the password, or neither")
        if self.user and self.tls is Tls.NONE and self.host not in _LOOPBACK:
            raise ConfigError(f"the password would be sent to {self.host} unencrypted; use starttls or implicit TLS")

    def connect(self) -> smtplib.SMTP:
        """Connect and log in. Raises NotAcceptedError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file) if self.tls is not Tls.NONE else None
            if self.tls is Tls.IMPLICIT:
                client: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout_s, context=context)
            else:
                client = smtplib.SMTP(self.host, self.port, timeout=self.timeout_s)
            if self.tls is Tls.STARTTLS:
                client.starttls(context=context)
            if self.user and self.password:
                client.login(self.user, self.password)
            client.ehlo_or_helo_if_needed()
        except smtplib.SMTPAuthenticationError as error:
            raise ConfigError(f"{self.host}:{self.port} rejects the login: {_text(error.smtp_error)}") from error
        except (OSError, smtplib.SMTPException) as error:
            raise NotAcceptedError(f"{self.host}:{self.port}: {error}", is_permanent=False) from error
        return client


class Submission:
    """Submits mails over one connection, which is opened when needed. Use it from one thread."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server
        self._client: smtplib.SMTP | None = None

    def prepare(self, sender: str, address: str, mail: EmailMessage) -> None:
        """Send everything but the final dot. Connects again if the server has hung up.

        Raises NotAcceptedError or SenderRefusedError.
        """
        try:
            self._prepare(sender, address, mail)
        except (OSError, smtplib.SMTPException):
            self.close()  # an idle server hangs up: retry with a new connection
            try:
                self._prepare(sender, address, mail)
            except (OSError, smtplib.SMTPException) as error:
                self.close()
                raise NotAcceptedError(f"{self._server.host}: {error}", is_permanent=False) from error

    def _prepare(self, sender: str, address: str, mail: EmailMessage) -> None:
        client = self._client = self._client or self._server.connect()
        self._check_sender(client.mail(sender), 250)
        self._check_address(client.rcpt(address))
        self._check_sender(client.docmd("DATA"), 354)
        body = _DOT_STUFFING.sub(b"..", mail.as_bytes())
        client.send(body if body.endswith(b"\r\n") else body + b"\r\n")

    def finish(self) -> None:
        """Send the final dot and wait for the response. Raises NotAcceptedError or UnknownOutcomeError."""
        assert self._client is not None
        try:
            self._client.send(b".\r\n")
            reply = self._client.getreply()
        except (OSError, smtplib.SMTPException) as error:
            self.close()
            raise UnknownOutcomeError(f"{self._server.host}: no response after the end of the mail: {error}") from error
        if reply[0] != 250:
            raise self._not_accepted(reply)

    def close(self) -> None:
        """Close the connection. The server discards a mail without its final dot."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def quit(self) -> None:
        """Say goodbye to the server and close the connection."""
        if self._client is not None:
            with suppress(OSError, smtplib.SMTPException):
                self._client.quit()
        self.close()

    def _check_sender(self, reply: tuple[int, bytes], code: int) -> None:
        if reply[0] != code:
            raise self._sender_refused(reply) if reply[0] >= _PERMANENT else self._not_accepted(reply)

    def _check_address(self, reply: tuple[int, bytes]) -> None:
        if reply[0] in _LOGIN:
            raise self._sender_refused(reply)
        if reply[0] not in (250, 251):
            raise self._not_accepted(reply, is_policy=bool(_POLICY.match(reply[1])))

    def _sender_refused(self, reply: tuple[int, bytes]) -> SenderRefusedError:
        self._reset()
        return SenderRefusedError(self._said(reply))

    def _not_accepted(self, reply: tuple[int, bytes], *, is_policy: bool = False) -> NotAcceptedError:
        self._reset()
        return NotAcceptedError(self._said(reply), is_permanent=reply[0] >= _PERMANENT, is_policy=is_policy)

    def _said(self, reply: tuple[int, bytes]) -> str:
        return f"{self._server.host}: {reply[0]} {_text(reply[1])}"

    def _reset(self) -> None:
        """Make the server forget the mail, so that the next one can follow."""
        if self._client is not None:
            with suppress(OSError, smtplib.SMTPException):
                self._client.rset()


def _text(reply: bytes | str) -> str:
    return reply if isinstance(reply, str) else reply.decode(errors="replace")
