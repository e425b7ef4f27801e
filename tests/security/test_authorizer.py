"""The rules of Kafka's StandardAuthorizer, one by one and against a naive evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.errors import ConfigError
from skylog.security.acl import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
    parse_kind,
)
from skylog.security.authorizer import Authorizer, parse_super_users

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DELETE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER
DESCRIBE, ALL = AclOperation.DESCRIBE, AclOperation.ALL
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def rule(
    name: str,
    operation: AclOperation,
    permission: Permission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(Resource(TOPIC, pattern, name), principal, host, operation, permission)


def authorizer(*rules: Acl, super_users: str = "", allow_if_no_acl: bool = False) -> Authorizer:
    made = Authorizer(parse_super_users(super_users), allow_if_no_acl=allow_if_no_acl)
    for resource in {each.resource for each in rules}:
        made.put(resource, [each for each in rules if each.resource == resource])
    return made


def may(
    made: Authorizer, operation: AclOperation, name: str = "clicks", principal: str = "User:alice", host: str = "h"
) -> bool:
    return made.decide(principal, host, operation, TOPIC, name).is_allowed


@pytest.mark.parametrize(
    ("rules", "operation", "expected"),
    [
        ([], READ, False),
        ([rule("clicks", READ)], READ, True),
        ([rule("click", READ)], READ, False),
        ([rule("clicks", READ)], WRITE, False),
        ([rule("clicks", READ)], DESCRIBE, True),
        ([rule("clicks", WRITE)], DESCRIBE, True),
        ([rule("clicks", DELETE)], DESCRIBE, True),
        ([rule("clicks", ALTER)], DESCRIBE, True),
        ([rule("clicks", DESCRIBE_CONFIGS)], DESCRIBE, False),
        ([rule("clicks", DESCRIBE)], READ, False),
        ([rule("clicks", ALTER_CONFIGS)], DESCRIBE_CONFIGS, True),
        ([rule("clicks", DESCRIBE_CONFIGS)], ALTER_CONFIGS, False),
        ([rule("clicks", ALL)], ALTER_CONFIGS, True),
        ([rule("clicks", ALL), rule("clicks", READ, DENY)], READ, False),
        ([rule("clicks", ALL), rule("clicks", READ, DENY)], DESCRIBE, True),  # a denial implies nothing
        ([rule("clicks", READ), rule("*", ALL, DENY)], READ, False),
        ([rule("clicks", READ), rule("cl", ALL, DENY, pattern=PREFIXED)], READ, False),
        ([rule("clicks", READ), rule("clicks", READ, DENY, principal="User:*")], READ, False),
        ([rule("clicks", READ), rule("clicks", READ, DENY, host="h")], READ, False),
        ([rule("clicks", READ), rule("clicks", READ, DENY, host="other")], READ, True),
        ([rule("clicks", READ, host="other")], READ, False),
        ([rule("clicks", READ, principal="User:bob")], READ, False),
        ([rule("clicks", READ, principal="User:*")], READ, True),
        ([rule("*", READ)], READ, True),
        ([rule("*", READ, pattern=PREFIXED)], READ, False),  # the wildcard is literal
        ([rule("cl", READ, pattern=PREFIXED)], READ, True),
        ([rule("clicks", READ, pattern=PREFIXED)], READ, True),
        ([rule("clicks-", READ, pattern=PREFIXED)], READ, False),
        # KAFKA-14265: a longer prefix hid a shorter one.
        ([rule("c", READ, pattern=PREFIXED), rule("cl", WRITE, pattern=PREFIXED, principal="User:bob")], READ, True),
        ([rule("c", ALL, DENY, pattern=PREFIXED), rule("click", READ, pattern=PREFIXED)], READ, False),
    ],
)
def test_the_rules_of_kafka(rules: list[Acl], operation: AclOperation, expected: bool) -> None:
    assert may(authorizer(*rules), operation) is expected


def test_super_users_may_do_everything() -> None:
    made = authorizer(rule("*", ALL, DENY, principal="User:*"), super_users="User:root; User:CN=a,O=b")
    assert may(made, WRITE, principal="User:root")
    assert may(made, WRITE, principal="User:CN=a,O=b")
    assert not may(made, WRITE)


def test_everyone_is_allowed_only_where_no_rule_applies() -> None:
    made = authorizer(rule("clicks", READ, principal="User:bob"), allow_if_no_acl=True)
    assert may(made, READ, "views")
    assert not may(made, READ, "clicks")
    assert made.decide("User:alice", "h", ALTER, CLUSTER, "kafka-cluster").is_allowed


def test_a_decision_names_its_rule() -> None:
    allowed, denied = rule("clicks", READ), rule("cl", WRITE, DENY, pattern=PREFIXED)
    made = authorizer(allowed, denied)
    assert made.decide("User:alice", "h", READ, TOPIC, "clicks").acl == allowed
    assert made.decide("User:alice", "h", WRITE, TOPIC, "clicks").acl == denied
    assert made.decide("User:alice", "h", READ, GROUP, "clicks").reason == "there is no rule for this resource"
    assert str(denied) == "deny User:alice write on topic cl…"


def test_every_change_begins_another_epoch() -> None:
    made = authorizer(rule("clicks", READ))
    before = made.epoch
    made.put(Resource(TOPIC, LITERAL, "clicks"), [])
    assert made.epoch > before
    assert not may(made, READ)
    assert made.acls() == []


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule("clicks", WRITE)], True),
        ([rule("clicks", READ)], False),
        ([rule("clicks", WRITE), rule("clicks", WRITE, DENY)], False),
        ([rule("clicks", WRITE), rule("cl", ALL, DENY, pattern=PREFIXED)], False),
        ([rule("clicks", WRITE), rule("*", ALL, DENY)], False),
        ([rule("cl", WRITE, pattern=PREFIXED), rule("clicks", WRITE, DENY)], True),
        ([rule("*", WRITE), rule("cl", WRITE, DENY, pattern=PREFIXED)], True),
    ],
)
def test_a_right_to_any_resource_of_a_type(rules: list[Acl], expected: bool) -> None:
    assert authorizer(*rules).may_on_any("User:alice", "h", WRITE, TOPIC) is expected


names = st.text("ab*", min_size=1, max_size=3)
principals = st.sampled_from(["User:a", "User:b", "User:*"])
acls = st.builds(
    Acl,
    st.builds(Resource, st.sampled_from([TOPIC, GROUP]), st.sampled_from([LITERAL, PREFIXED]), names),
    principals,
    st.sampled_from(["h", "i", "*"]),
    st.sampled_from([*AclOperation][1:]),
    st.sampled_from([ALLOW, DENY]),
)
IMPLIED = {DESCRIBE: {READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {ALTER_CONFIGS}}


def naive(rules: list[Acl], principal: str, operation: AclOperation, name: str, allow_if_no_acl: bool) -> bool:
    """Evaluate all rules, one after the other."""
    of_resource = [
        each
        for each in rules
        if each.resource.type is TOPIC
        and (
            name.startswith(each.resource.name)
            if each.resource.pattern is PREFIXED
            else each.resource.name in ("*", name)
        )
    ]
    if not of_resource:
        return allow_if_no_acl
    mine = [each for each in of_resource if each.principal in (principal, "User:*") and each.host in ("h", "*")]
    if any(each.permission is DENY and each.operation in (operation, ALL) for each in mine):
        return False
    wanted = {operation, ALL, *IMPLIED.get(operation, ())}
    return any(each.permission is ALLOW and each.operation in wanted for each in mine)


@given(st.lists(acls, max_size=12), st.sampled_from([*AclOperation][2:]), names, st.booleans())
def test_decisions_equal_a_naive_evaluation(
    rules: list[Acl], operation: AclOperation, name: str, allow_if_no_acl: bool
) -> None:
    made = authorizer(*rules, allow_if_no_acl=allow_if_no_acl)
    assert may(made, operation, name, "User:a") is naive(rules, "User:a", operation, name, allow_if_no_acl)
    assert sorted(set(made.acls())) == sorted(set(rules))
    left = rules[1:]
    for resource in {each.resource for each in rules[:1]}:
        made.put(resource, [each for each in left if each.resource == resource])
    assert may(made, operation, name, "User:a") is naive(left, "User:a", operation, name, allow_if_no_acl)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (AclFilter(), True),
        (AclFilter(TOPIC, LITERAL, "cl"), False),
        (AclFilter(TOPIC, PREFIXED, "cl"), True),
        (AclFilter(TOPIC, PREFIXED, "clicks"), False),
        (AclFilter(TOPIC, PatternType.MATCH, "clicks"), True),
        (AclFilter(TOPIC, PatternType.MATCH, "views"), False),
        (AclFilter(GROUP), False),
        (AclFilter(principal="User:alice", operation=READ, permission=ALLOW, host="*"), True),
        (AclFilter(principal="User:*"), False),
    ],
)
def test_filters(found: AclFilter, expected: bool) -> None:
    assert found.matches(rule("cl", READ, pattern=PREFIXED)) is expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rule("", READ), "empty"),
        (rule("t", AclOperation.CLUSTER_ACTION), "no operation"),
        (rule("t", READ, principal="alice"), "User:NAME"),
        (rule("t", READ, host=""), "host"),
        (rule("t", READ, pattern=PatternType.MATCH), "literal or prefixed"),
        (Acl(Resource(CLUSTER, LITERAL, "mine"), "User:a", "*", ALTER, ALLOW), "kafka-cluster"),
        (Acl(Resource(ResourceType.USER, LITERAL, "a"), "User:a", "*", DESCRIBE, ALLOW), "no ACLs"),
    ],
)
def test_entries_that_kafka_refuses(wrong: Acl, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrong.check()


def test_rules_survive_being_stored() -> None:
    each = rule("cl", ALL, DENY, pattern=PREFIXED, host="10.0.0.1")
    assert Acl.from_value(each.resource, each.to_value()) == each


def test_operations_are_read_and_named_with_hyphens() -> None:
    assert (
        parse_kind(AclOperation, "describe-configs") is parse_kind(AclOperation, "DESCRIBE_CONFIGS") is DESCRIBE_CONFIGS
    )
    with pytest.raises(ConfigError, match=r"'reed' is not one of .*\bread\b.*\bdescribe-configs\b"):
        parse_kind(AclOperation, "reed")
