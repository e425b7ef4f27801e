"""Which quota applies to a client: Kafka's precedence, and who shares it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skylog.quotas import Entity, Match, QuotaKey, QuotaRules

RATE = QuotaKey.PRODUCER_BYTE_RATE

BY_PRECEDENCE: list[tuple[Entity, tuple[str | None, str | None]]] = [
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
]
OTHERS: list[Entity] = [(("user", "x"),), (("client-id", "x"),), (("user", "u"), ("client-id", "x")), (("ip", None),)]


@given(set_for=st.sets(st.sampled_from(range(8))))
def test_the_most_specific_rule_counts(set_for: set[int]) -> None:
    quotas: dict[Entity, dict[QuotaKey, float]] = {BY_PRECEDENCE[at][0]: {RATE: at + 1.0} for at in set_for}
    quotas |= {other: {RATE: 100.0} for other in OTHERS[:3]}
    found = QuotaRules(quotas).find(RATE, "u", "c")
    assert found == (Match(min(set_for) + 1.0, *BY_PRECEDENCE[min(set_for)][1]) if set_for else None)


def test_each_quota_is_looked_up_by_itself() -> None:
    rules = QuotaRules(
        {
            (("user", "u"),): {QuotaKey.CONSUMER_BYTE_RATE: 1.0},
            (("client-id", "c"),): {QuotaKey.PRODUCER_BYTE_RATE: 2.0},
        }
    )
    assert rules.find(QuotaKey.CONSUMER_BYTE_RATE, "u", "c") == Match(1.0, "u", None)
    assert rules.find(QuotaKey.PRODUCER_BYTE_RATE, "u", "c") == Match(2.0, None, "c")
    assert rules.find(QuotaKey.REQUEST_PERCENTAGE, "u", "c") is None


def test_addresses_have_their_own_rate_or_that_of_all() -> None:
    rate = QuotaKey.CONNECTION_CREATION_RATE
    rules = QuotaRules({(("ip", "0:0::1"),): {rate: 1.0}, (("ip", None),): {rate: 2.0}})
    assert (rules.connection_rate("::1"), rules.connection_rate("127.0.0.1")) == (1.0, 2.0)
    assert not rules.has_clients
    assert QuotaRules({}).connection_rate("::1") is None
