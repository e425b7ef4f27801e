"""Checks users and their rights by logging in to the cluster as them, for the console and the registry.

    users = ClusterUsers(connection, console_rights)
    found = await users.visitor("alice", "secret")

They act with the rights of their own login, so a visitor must have a right that is as good: see `console_rights` and
`registry_rights`. A result counts for `TRUSTED_S`. While no broker answers, one that was right before still counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from skylog.client.connection import Connection
from skylog.client.peer_requests import CLIENT_ID, wait_for
from skylog.errors import ErrorCode, SkylogError
from skylog.net.peer import LoginRefusedError, Peer, PeerError, PeerSecurity
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.schema import Message
from skylog.security.acl import AclOperation
from skylog.web.access import Refusal
from skylog.web.users import Visitor

TRUSTED_S: Final = 30.0
TIMEOUT_S: Final = 10.0
MAX_KNOWN: Final = 1_000
MAX_LOGINS: Final = 4
"""Logins at the same time, of those who were right before and of all others. Each takes a thread and a connection."""
MAX_WAITING: Final = 100
BUSY: Final = Refusal(503, "cannot check the login: there are too many others; try again")
WRONG: Final = Refusal(401, "wrong user or password: log in as a user of the cluster, see `skylog users`")


class RightsQuery(NamedTuple):
    """What to ask the cluster as a user, and what the response means. `decide` gets the user's name."""

    request: Message
    version: int
    decide: Callable[[str, Any], Visitor | Refusal]


class _Known(NamedTuple):
    visitor: Visitor
    until_s: float


def console_rights(connection: Connection) -> RightsQuery:
    """The console may do everything that its login may.

    So its visitors must be that user, or may ALTER the cluster: then they may give themselves every right.
    """

    def decide(user: str, response: Any) -> Visitor | Refusal:
        if user == connection.user or _has(AclOperation.ALTER, response.cluster_authorized_operations):
            return Visitor(user)
        return Refusal(
            403,
            f"{user} may not use this console, which has the rights of {connection.user}: "
            f"`skylog acls add {user} alter --cluster` gives the right to administer the cluster",
        )

    return RightsQuery(DescribeClusterRequest(include_cluster_authorized_operations=True), 0, decide)


def registry_rights(connection: Connection, topic: str) -> RightsQuery:
    """Schemas are records of a topic: those who may read it may read them, those who may write it may change them.

    The registry's own user may do both, also if the topic was deleted.
    """

    def decide(user: str, response: Any) -> Visitor | Refusal:
        if user == connection.user:
            return Visitor(user)
        row = response.topics[0]
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Refusal(503, f"cannot check the rights: there is no topic '{topic}'")
        operations = row.topic_authorized_operations
        if not _has(AclOperation.READ, operations):
            return Refusal(403, f"{user} may not read schemas: `skylog acls add {user} read --topic {topic}`")
        return Visitor(user, may_change=_has(AclOperation.WRITE, operations))

    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return RightsQuery(request, 8, decide)


class ClusterUsers:
    """Lives on the event loop. The connection must have a login with a password."""

    def __init__(self, connection: Connection, query: RightsQuery, now: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._query = query
        self._now = now
        self._renewals, self._logins = asyncio.Semaphore(MAX_LOGINS), asyncio.Semaphore(MAX_LOGINS)
        self._threads = ThreadPoolExecutor(2 * MAX_LOGINS, "skylog-login")  # brokers may hang, and others need threads
        self._asked: dict[bytes, asyncio.Task[Visitor | Refusal]] = {}
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, _Known] = {}  # by a digest of user and password; the oldest first

    async def visitor(self, user: str, password: str) -> Visitor | Refusal:
        key = hmac.digest(self._key, b"%d:%b%b" % (len(user), user.encode(), password.encode()), hashlib.sha256)
        known = self._known.get(key)
        if known is not None and known.until_s > self._now():
            return known.visitor
        if not (user and user.isprintable()):
            return WRONG
        asked = self._asked.get(key)
        if asked is None:
            if known is None and len(self._asked) >= MAX_WAITING:
                return BUSY
            asked = self._asked[key] = asyncio.create_task(self._check(key, user, password, known))
            asked.add_done_callback(lambda _: self._asked.pop(key))
        return await asyncio.shield(asked)

    async def _check(self, key: bytes, user: str, password: str, known: _Known | None) -> Visitor | Refusal:
        """Ask the cluster. Those who guess passwords do not keep those waiting who were right before."""
        async with self._logins if known is None else self._renewals:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, user, password)
        if isinstance(found, Visitor):
            self._remember(key, found)
        elif found.status == 503 and known is not None:
            return known.visitor
        else:
            self._known.pop(key, None)
        return found

    def _remember(self, key: bytes, visitor: Visitor) -> None:
        self._known.pop(key, None)
        while len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key] = _Known(visitor, self._now() + TRUSTED_S)

    def _ask(self, user: str, password: str) -> Visitor | Refusal:
        """Log in as the user and ask for the rights. Blocks."""
        problem = "no broker answers"
        try:
            security = self._connection.security_as(user, password)
            for host, port in self._connection.addresses():
                try:
                    return self._query.decide(user, wait_for(self._ask_one(host, port, security)))
                except LoginRefusedError:
                    return WRONG
                except PeerError as error:
                    problem = str(error)
        except SkylogError as error:
            problem = str(error)
        return Refusal(503, f"cannot check the login: {problem}")

    async def _ask_one(self, host: str, port: int, security: PeerSecurity) -> Any:
        peer = await Peer.connect(host, port, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security)
        try:
            return await peer.ask(self._query.request, self._query.version)
        finally:
            peer.close()


def _has(operation: AclOperation, operations: int) -> bool:
    return operations >= 0 and bool(operations >> operation & 1)
