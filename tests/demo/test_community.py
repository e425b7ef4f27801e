"""What the simulated users of the demo do beside viewing pages."""

from __future__ import annotations

from collections import Counter
from random import Random

from skylog.demo.community import ATTACKER, Community


def test_users_do_what_the_jobs_need() -> None:
    community = Community(Random(1))
    events = [each for _ in range(20_000) for each in community.request(0)]
    kinds = Counter(each.event for each in events)
    assert kinds.keys() == {
        *("user.login", "user.login_failed", "user.follow", "user.unfollow", "post.create", "comment.create")
    }
    assert kinds["user.follow"] > kinds["user.unfollow"]
    comments = [each.attributes for each in events if each.event == "comment.create"]
    assert 0 < sum("Free money" in each["body"] for each in comments) < len(comments) / 4
    ids = [each.attributes["id"] for each in events if "id" in each.attributes]
    assert len(set(ids)) == len(ids)
    followed = {each.attributes["author"] for each in events if each.event == "user.follow"}
    assert followed & {str(each.user.id) for each in events if each.event == "post.create"}


def test_an_address_tries_many_users_for_a_while() -> None:
    community = Community(Random(1), attacked_after_s=15, attacked_for_s=30)

    def attempts(elapsed_s: float) -> set[str]:
        events = [each for _ in range(2000) for each in community.request(elapsed_s)]
        failed = [each for each in events if each.attributes.get("address") == ATTACKER]
        assert {each.event for each in failed} <= {"user.login_failed"}
        return {each.attributes["name"] for each in failed}

    assert (attempts(14), attempts(46)) == (set(), set())
    assert len(attempts(20)) > 20
