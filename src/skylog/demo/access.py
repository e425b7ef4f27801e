"""Who the parts of a secured demo log in as, and what each of them may do. Without `--secure` nobody logs in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skylog.audit import AUDIT_TOPIC
from skylog.client import Connection
from skylog.client.acl_admin import AclAdmin
from skylog.client.user_admin import UserAdmin
from skylog.config import read_properties
from skylog.demo.layout import EVENTS, FEED, FEED_UNPARSED, JOBS, NEWSFEED, PAGES_TOPIC, RISING, SEARCH, USERS_TOPIC
from skylog.job_status import JOBS_TOPIC
from skylog.security.acl import ANY_HOST, Acl, AclOperation, PatternType, Permission, Resource, ResourceType
from skylog.security.development_set import (
    ADMIN,
    CLIENT,
    MECHANISM,
    SERVER,
    client_properties,
    is_development_set,
    new_password,
    write_development_set,
    write_secret,
)
from skylog.security.jaas import parse_jaas

WEBSITE_USER: Final = "website"
NEWSFEED_USER: Final = "newsfeed"
PIPELINE_USER: Final = "pipeline"
_ITERATIONS: Final = 4096
_STREAMS: Final = ("feed", "security")

_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
RIGHTS: Final[Mapping[str, Mapping[tuple[AclOperation, ResourceType], Sequence[str]]]] = {
    WEBSITE_USER: {(_WRITE, ResourceType.TOPIC): (EVENTS, PAGES_TOPIC, USERS_TOPIC, AUDIT_TOPIC)},
    NEWSFEED_USER: {
        (_READ, ResourceType.TOPIC): (EVENTS,),
        (_WRITE, ResourceType.TOPIC): (AUDIT_TOPIC,),
        (_READ, ResourceType.GROUP): (NEWSFEED,),
    },
    PIPELINE_USER: {
        (_READ, ResourceType.TOPIC): (EVENTS, PAGES_TOPIC),
        (_WRITE, ResourceType.TOPIC): (RISING, FEED, FEED_UNPARSED, AUDIT_TOPIC, JOBS_TOPIC),
        (_CREATE, ResourceType.TOPIC): (FEED_UNPARSED, JOBS_TOPIC),
        (_READ, ResourceType.GROUP): (*JOBS, SEARCH, *_STREAMS),
    },
}
"""What each user may do: no more than it does. The brokers, the console and the summary log in as `admin`."""


@dataclass(frozen=True)
class Access:
    """The files of a secured demo, which `prepare` writes. Without a folder no part of the demo logs in."""

    folder: Path | None = None

    @property
    def server_file(self) -> Path | None:
        return None if self.folder is None else self.folder / SERVER

    def client_file(self, user: str = ADMIN) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / (CLIENT if user == ADMIN else f"{user}.properties")

    def prepare(self) -> None:
        """Write certificates and passwords, unless a former run has. Raises SkylogError."""
        if self.folder is None:
            return
        if not is_development_set(self.folder):
            write_development_set(self.folder)
        for user in RIGHTS:
            path = self.folder / f"{user}.properties"
            if not path.exists():
                write_secret(path, client_properties(self.folder, None, user, new_password()))

    def grant(self, bootstrap: str) -> None:
        """Add the users and their rights through a broker. Raises SkylogError."""
        if self.folder is None:
            return
        users, acls = UserAdmin(self.connection(bootstrap)), AclAdmin(self.connection(bootstrap))
        for user in RIGHTS:
            password = parse_jaas(self.settings(user)["sasl.jaas.config"])["password"]
            users.add(user, password, [MECHANISM], _ITERATIONS)
        acls.add(demo_acls())

    def settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings of a client, with the names of Kafka's Java clients."""
        path = self.client_file(user)
        if path is None:
            return {}
        settings = read_properties(path.read_text())
        settings.pop("bootstrap.servers", None)
        return settings

    def connection(self, bootstrap: str, user: str = ADMIN, timeout_s: float = 30.0) -> Connection:
        return Connection(bootstrap, self.settings(user), timeout_s)


def demo_acls() -> Iterator[Acl]:
    for user, rights in RIGHTS.items():
        for (operation, kind), names in rights.items():
            for name in names:
                resource = Resource(kind, PatternType.LITERAL, name)
                yield Acl(resource, f"User:{user}", ANY_HOST, operation, Permission.ALLOW)
