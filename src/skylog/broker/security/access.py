"""Access control: the rules of the cluster, the rights of each session, and the checks of handlers.

A session remembers each decision until a rule or its principal changes. Without an authorizer sessions have no rights
object, and every check is one comparison with None.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from skylog.broker.security.needs import Need
from skylog.broker.security.stored_rules import acls_of, resource_of, with_acls, without_acls
from skylog.cluster.acls import AllRules, StoredAcls
from skylog.cluster.store import MetadataStore
from skylog.errors import ErrorCode, KafkaError
from skylog.security.acl import CLUSTER_NAME, Acl, AclFilter, AclOperation, ResourceType
from skylog.security.authorizer import Authorizer, parse_super_users
from skylog.security.config import SecurityConfig

if TYPE_CHECKING:
    from skylog.broker.api import Context
    from skylog.broker.session import Session

audit_logger = logging.getLogger("kafka.authorizer.logger")
"""Has a line for every decision: denied at INFO, allowed at DEBUG, as in Kafka, which has the name."""
if audit_logger.level == logging.NOTSET:
    audit_logger.setLevel(logging.WARNING)  # off unless somebody asks for it: clients cause these lines

MAX_REMEMBERED: Final = 10_000
ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_Key = tuple[AclOperation, ResourceType, str]
_KINDS: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
}


class AccessControl:
    """The authorizer of a broker. It follows the rules in the metadata store from `load` on."""

    def __init__(self, config: SecurityConfig, store: MetadataStore) -> None:
        self.stored = StoredAcls(store)
        self.authorizer = Authorizer(
            parse_super_users(config.super_users), allow_if_no_acl=config.allow_everyone_if_no_acl_found
        )

    async def load(self) -> None:
        await self.stored.follow(self._update)

    async def add(self, acls: Iterable[Acl]) -> None:
        """Add rules, all of them in one commit. Those that exist stay as they are."""
        new = list(acls)
        await self.stored.change(lambda before: with_acls(before, new))

    async def remove(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Remove the rules that match any of the filters, in one commit, and return them."""
        removed: list[Acl] = []

        def decide(before: AllRules) -> AllRules:
            after, removed[:] = without_acls(before, filters)
            return after

        await self.stored.change(decide)
        return removed

    def _update(self, changed: AllRules) -> None:
        for stored, rules in changed.items():
            self.authorizer.put(resource_of(stored), acls_of(stored, rules))


class Rights:
    """What the principal of one session may do. Decisions are remembered until a rule or the principal changes."""

    __slots__ = ("_authorizer", "_epoch", "_hidden", "_known", "_principal", "_session")

    def __init__(self, authorizer: Authorizer, session: Session) -> None:
        self._authorizer = authorizer
        self._session = session
        self._epoch = authorizer.epoch
        self._principal = ""
        self._known: dict[_Key, bool] = {}
        self._hidden: set[_Key] = set()

    @property
    def epoch(self) -> int:
        """The number of the rules. What was allowed under another one must be checked again."""
        return self._authorizer.epoch

    @property
    def host(self) -> str:
        return self._session.connection.peer.rpartition(":")[0].strip("[]")

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        if self._epoch != self._authorizer.epoch or self._principal != self._session.principal:
            self._forget()
        key = (operation, resource_type, name)
        known = self._known.get(key)
        return self._decide(key, is_attempt=True) if known is None else known

    def sees(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Like `may`, for what the client has not asked for: a denial is not logged."""
        if self._epoch != self._authorizer.epoch or self._principal != self._session.principal:
            self._forget()
        key = (operation, resource_type, name)
        if key in self._hidden:
            return False
        known = self._known.get(key)
        return self._decide(key, is_attempt=False) if known is None else known

    def _forget(self) -> None:
        self._epoch, self._principal = self._authorizer.epoch, self._session.principal
        self._known.clear()
        self._hidden.clear()

    def _decide(self, key: _Key, *, is_attempt: bool) -> bool:
        """Decide, log it, and remember it. What is denied without an attempt is remembered apart, to log an attempt."""
        operation, resource_type, name = key
        host = self.host
        decision = self._authorizer.decide(self._principal, host, operation, resource_type, name)
        if len(self._known) + len(self._hidden) >= MAX_REMEMBERED:
            self._known.clear()
            self._hidden.clear()
        if not decision.is_allowed and not is_attempt:
            self._hidden.add(key)
            return False
        self._known[key] = decision.is_allowed
        audit_logger.log(
            logging.DEBUG if decision.is_allowed else logging.INFO,
            "%s from %s: %s on %s %r: %s, by %s",
            self._principal,
            host,
            operation.name,
            resource_type.name,
            name,
            "allowed" if decision.is_allowed else "denied",
            decision.acl or decision.reason,
        )
        return decision.is_allowed

    def may_on_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of the type on which the operation is allowed."""
        return self._authorizer.may_on_any(self._session.principal, self.host, operation, resource_type)

    def refusal(self, needs: Sequence[Need], request: Any) -> KafkaError | None:
        """Return the error of a request that may not be sent as a whole, None if it may."""
        for need in needs:
            if need.is_of_request:
                name = CLUSTER_NAME if need.field is None else getattr(request, need.field)
                if not any(self.may(operation, need.resource, name) for operation in need.operations):
                    return _denied(self._session.principal, need.operations, need.resource, name)
        return None


def _denied(principal: str, operations: Sequence[AclOperation], resource_type: ResourceType, name: str) -> KafkaError:
    what = " or ".join(each.name for each in operations)
    of_what = "the cluster" if resource_type is ResourceType.CLUSTER else f"the {_KINDS[resource_type]} '{name}'"
    return KafkaError(ERRORS[resource_type], f"{principal} may not {what} {of_what}")


def explain(response: Any, error: KafkaError) -> None:
    """Say in a response, and in those of its rows, why they have this error, where Kafka's message has room for it."""
    values = (getattr(response, each.name) for each in fields(response))
    for part in (response, *(row for rows in values if isinstance(rows, list) for row in rows)):
        if getattr(part, "error_code", None) == error.code and hasattr(part, "error_message"):
            part.error_message = error.message


def may(context: Context, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
    """Whether the client may do this, which is always so without an authorizer."""
    rights = context.session.rights
    return rights is None or rights.may(operation, resource_type, name)


def sees(context: Context, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
    """Like `may`, for a list, or for a right that another one can replace. It is no attempt to do what is denied."""
    rights = context.session.rights
    return rights is None or rights.sees(operation, resource_type, name)


def check(context: Context, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
    """Raise the KafkaError of the resource type unless the client may do this."""
    rights = context.session.rights
    if rights is not None and not rights.may(operation, resource_type, name):
        raise _denied(context.session.principal, (operation,), resource_type, name)


def check_topic(context: Context, operation: AclOperation, topic: str) -> None:
    check(context, operation, ResourceType.TOPIC, topic)


def check_config(context: Context, operation: AclOperation, is_of_topic: bool, name: str) -> None:
    """Check the right to the settings of a topic, or to those of brokers, which belong to the cluster."""
    if is_of_topic:
        check_topic(context, operation, name)
    else:
        check(context, operation, ResourceType.CLUSTER)
