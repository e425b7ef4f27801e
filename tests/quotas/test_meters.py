"""What clients have used: waits, refusals, buckets of changes, and that quiet meters are forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.quotas import Entity, Meter, Meters, MutationMeter, QuotaConfig, QuotaKey, QuotaRules, meters
from skylog.windowed_rate import WindowedRate


def rules(**quotas: float) -> QuotaRules:
    any_user: Entity = (("user", None),)
    return QuotaRules({any_user: {QuotaKey(key): value for key, value in quotas.items()}})


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=100))
def test_a_consumer_that_waits_gets_everything_and_keeps_to_its_limit(sizes: list[int]) -> None:
    """Also what is larger than a whole window: the rate is then kept by the wait that follows."""
    meter, now_s, sent = Meter(100.0, WindowedRate(11, 1.0)), 0.0, 0
    for size in sizes:
        for _ in range(1000):
            may_send, wait_s = meter.try_charge(size, now_s)
            now_s += wait_s
            if may_send:
                break
            assert wait_s > 0
        else:
            pytest.fail("it never gets it")
        sent += size
    assert sent <= 2 * 100 * (now_s + 11) + 5000


def test_what_is_refused_is_not_counted() -> None:
    meter = Meter(100.0, WindowedRate(11, 1.0))
    assert meter.try_charge(900, 0.0) == (True, 0.0)
    assert meter.try_charge(200, 0.0) == (False, 1.0)
    assert meter.try_charge(100, 0.0) == (True, 0.0)
    assert meter.throttled == 1
    assert meter.throttled_s == pytest.approx(1.0)


def test_a_wait_for_time_is_at_most_one_window() -> None:
    limits = Meters(rules(request_percentage=1.0), QuotaConfig()).of("u", "c", 0.0)
    assert limits.request is not None
    assert limits.request.charge(100_000, 0.0) == 1.0


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_changes_are_refused_until_the_bucket_is_paid(counts: list[int]) -> None:
    meter, now_s, made = MutationMeter(2.0, 11.0, 0.0), 0.0, 0
    for count in counts:
        wait_s = meter.try_take(count, now_s)
        if wait_s:
            now_s += wait_s + 1e-9
            assert meter.try_take(count, now_s) == 0
        made += count
    assert made <= 2 * (now_s + 11) + 30


def test_changes_of_older_clients_are_made_and_followed_by_a_wait() -> None:
    meter = MutationMeter(2.0, 11.0, 0.0)
    assert meter.take(22, 0.0) == 0
    assert meter.take(10, 0.0) == pytest.approx(5.0)
    assert meter.tokens(5.0) == pytest.approx(0)


def test_clients_of_a_user_share_its_quota_and_users_do_not_share_the_default() -> None:
    found = Meters(rules(producer_byte_rate=10.0), QuotaConfig())
    one, other, another = found.of("a", "1", 0.0), found.of("a", "2", 0.0), found.of("b", "1", 0.0)
    assert one.produce is other.produce
    assert one.produce is not another.produce
    assert one.fetch is None


def test_other_rules_count_at_once_and_what_was_used_still_counts() -> None:
    found = Meters(rules(producer_byte_rate=10.0), QuotaConfig())
    before = found.of("a", "1", 0.0).produce
    assert before is not None
    before.charge(100, 0.0)
    found.change_rules(rules(producer_byte_rate=1.0))
    after = found.of("a", "1", 0.0).produce
    assert after is before
    assert after.charge(0, 0.0) == pytest.approx(90.0)
    found.change_rules(rules(consumer_byte_rate=1.0))
    assert found.of("a", "1", 0.0).produce is None


def test_quiet_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "MAX_CLIENTS", 10)
    found = Meters(rules(producer_byte_rate=10.0, controller_mutation_rate=1.0), QuotaConfig())
    for number in range(100):
        limits = found.of(f"user-{number}", "", float(number))
        assert limits.produce is not None
        limits.produce.charge(1, float(number))
    assert len(found.rates) <= 30
    assert len(found.mutations) <= 30
