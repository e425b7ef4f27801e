"""Comments are flagged once, with all reasons, by what they say and by what their user wrote before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from skylog.pipeline import Topic
from skylog.pipeline.jobs.spam import SpamRules, spam_job
from skylog.testing import BrokerProcess, consume
from tests.pipeline.jobs.logged_events import NOON_MS, Logged, send

RULES = SpamRules(links=1, comments=2, window_s=60)


def comment(at_s: float, number: int, body: str, user: str | None = "ada") -> Logged:
    return Logged(at_s, "comment.create", user, {"id": number, "body": body, "post_id": 1})


def test_a_comment_is_flagged_with_its_reasons(
    spark: SparkSession, skylog_broker: BrokerProcess, event_topic: str, tmp_path: Path
) -> None:
    bootstrap, into = skylog_broker.bootstrap, f"{event_topic}-flagged"
    job = spam_job([event_topic], Topic(into), RULES)

    def run(*comments: Logged) -> dict[str, Any]:
        send(bootstrap, event_topic, comments)
        job.run(spark, bootstrap, once=True, state=tmp_path / "state")
        found = consume(bootstrap, into)
        assert len({message.key for message in found}) == len(found)
        return {(message.key or b"").decode(): message.json()["reasons"] for message in found}

    assert run(
        comment(0, 1, "What a fine post"),
        comment(1, 2, "Get FREE \n money now", "bob"),
        comment(2, 3, "see http://a.example and https://b.example", "bob"),
        comment(3, 4, "freemoney is no phrase", "cyd"),
        comment(20, 5, "Another thought"),
        comment(10, 6, "anything", None),  # comments without a user have nothing in common
        comment(11, 7, "anything", None),
        comment(12, 8, "anything", None),
    ) == {"2": ["phrase"], "3": ["links"]}
    assert run(  # the last comments of a user are kept from run to run
        comment(59, 9, "click here"),  # the third within a minute
        comment(60, 10, "another  THOUGHT", "cyd"),
        comment(79, 11, "another  THOUGHT"),  # again; at 79 s, those at 20 s and 59 s count
        comment(141, 12, "Another thought"),  # by then all others are more than a minute ago
    ) == {"2": ["phrase"], "3": ["links"], "9": ["phrase", "burst"], "11": ["burst", "repeat"]}
    flagged = next(message for message in consume(bootstrap, into) if message.key == b"2")
    assert flagged.json() == {"user": "bob", "reasons": ["phrase"], "body": "Get FREE \n money now"}
    assert flagged.timestamp_ms == NOON_MS + 1000
