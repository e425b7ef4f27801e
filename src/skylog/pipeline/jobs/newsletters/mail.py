"""A digest as a mail. The same digest is always the same mail, byte for byte, with the same Message-ID."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from skylog.errors import ConfigError, SkylogError

_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,  # pages and names are what anybody has written
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class DigestError(SkylogError):
    """A record is not a digest, or its address cannot be written to."""


@dataclass(frozen=True)
class DigestPage:
    page: str
    title: str
    text: str

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> DigestPage:
        return cls(str(fields["page"]), str(fields["title"]), str(fields.get("text") or ""))


@dataclass(frozen=True)
class Digest:
    """The pages of a day for a user."""

    user: str
    day: str
    address: str
    name: str
    pages: Sequence[DigestPage]

    @classmethod
    def decode(cls, value: bytes | None) -> Digest:
        """Read a record of the job. Raises DigestError."""
        try:
            fields: Mapping[str, Any] = json.loads(value or b"")
            day = date.fromisoformat(fields["day"]).isoformat()
            pages = [DigestPage.of(each) for each in fields["pages"]]
            return cls(str(fields["user"]), day, str(fields["address"]), str(fields.get("name") or ""), pages)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DigestError(f"not a digest: {error!r}") from error

    @property
    def key(self) -> str:
        """The identity of a digest: there is one for each day and user."""
        return f"{self.day}/{self.user}"


@dataclass(frozen=True)
class Letterhead:
    """What all mails have. `site` is the address before the path of a page. `{day}` in the subject is the day."""

    sender: str
    site: str = ""
    subject: str = "The news of {day}"

    def check(self) -> None:
        """Raise ConfigError if the settings allow no mail at all."""
        try:
            self.mail(Digest("0", "2026-01-01", "somebody@example.org", "", ()))
        except DigestError as error:
            raise ConfigError(f"invalid sender '{self.sender}' or subject '{self.subject}': {error}") from error

    def message_id(self, digest: Digest) -> str:
        """Return an id that depends on the user and the day only, so that receivers can recognise a repetition."""
        name = hashlib.sha256(digest.key.encode()).hexdigest()[:32]
        return f"<{digest.day}.{name}@{self.sender.rpartition('@')[2] or 'localhost'}>"

    def mail(self, digest: Digest) -> EmailMessage:
        """Return the mail. Raises DigestError if the address cannot be written to."""
        if not digest.address.isascii():
            raise DigestError(f"the address {digest.address!r} is not ASCII")
        mail = EmailMessage(policy=policy.SMTP)
        try:
            mail["From"] = self.sender
            mail["To"] = Address(display_name=digest.name, addr_spec=digest.address)
            mail["Subject"] = self.subject.format(day=f"{date.fromisoformat(digest.day):%-d %B %Y}")
        except (ValueError, LookupError, AttributeError, MessageError) as error:  # what parsing an address raises
            raise DigestError(f"cannot write to {digest.address!r}: {error}") from error
        mail["Date"] = format_datetime(datetime.fromisoformat(digest.day).replace(tzinfo=UTC))
        mail["Message-ID"] = self.message_id(digest)
        mail["Auto-Submitted"] = "auto-generated"
        mail["Precedence"] = "bulk"
        mail.set_content(self._text(digest))
        mail.add_alternative(self._html(digest), subtype="html")
        boundary = hashlib.sha256(mail["Message-ID"].encode()).hexdigest()[:32]
        mail.set_boundary(f"={boundary}=")  # a random one would make a repetition another mail
        return mail

    def _text(self, digest: Digest) -> str:
        parts = [f"{each.title}\n{self._address(each)}\n\n{each.text}\n" for each in digest.pages]
        return f"Hello {_name(digest)},\n\n" + "\n".join(parts)

    def _html(self, digest: Digest) -> str:
        pages = [{"address": self._address(each), "title": each.title, "text": each.text} for each in digest.pages]
        return _TEMPLATES.get_template("mail.html").render(name=_name(digest), pages=pages)

    def _address(self, page: DigestPage) -> str:
        """Return the address of a page, which is below the site whatever the page is called."""
        return self.site + ("" if page.page.startswith("/") else "/") + page.page


def _name(digest: Digest) -> str:
    return digest.name or digest.user
