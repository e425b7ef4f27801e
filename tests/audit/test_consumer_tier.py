"""The consumer's tier: counts are stored with the commit, and count once whichever member dies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Message

from skylog.audit import AUDIT_TOPIC, ConsumerAudit, Count, Report, Tier
from skylog.audit.commit_metadata import MAX_METADATA_BYTES, encode_metadata
from skylog.audit.consumer_tier import MAX_UNDER_WAY, MAX_UNPUBLISHED, ConsumedTier, pending_reports
from skylog.errors import ConfigError
from skylog.model import TopicPartition
from skylog.testing import ManualClock
from tests.seeds import seed

MINUTE_MS = 60_000
T = 28_000_000 * MINUTE_MS
MAX_REPORTS = MAX_UNDER_WAY + MAX_UNPUBLISHED + 1

Done = Callable[[bool], None]


def messages(start: int, end: int, *, partition: int = 0, time_ms: int = T, key: bytes | None = None) -> list[Message]:
    return [Message("clicks", partition, offset, key, b"12345", timestamp=(1, time_ms)) for offset in range(start, end)]


class AuditTopic:
    """Receives reports; `waiting` are those without a result yet."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.waiting: list[Done] = []

    def publish(self, topic: str, value: bytes, done: Done) -> None:
        assert topic == AUDIT_TOPIC
        self.reports.append(Report.decode(value))
        self.waiting.append(done)

    def answer_all(self, is_stored: bool = True) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(is_stored)

    def total(self) -> int:
        return total(self.reports)

    @property
    def ranges(self) -> list[tuple[int | None, int | None]]:
        return [(report.start_offset, report.end_offset) for report in self.reports]


def total(reports: Sequence[Report]) -> int:
    """The number of messages in reports; a report that is there twice counts once."""
    return sum(row.messages for report in {one.id: one for one in reports}.values() for row in report.counts)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T)


@pytest.fixture
def audit_topic() -> AuditTopic:
    return AuditTopic()


@pytest.fixture
def open_tier(clock: ManualClock, audit_topic: AuditTopic) -> Callable[[], ConsumedTier]:
    return lambda: ConsumerAudit(clock=clock).open_consumer("billing", audit_topic.publish)


@pytest.fixture
def tier(open_tier: Callable[[], ConsumedTier]) -> ConsumedTier:
    one = open_tier()
    one.assigned("clicks", 0, None)
    return one


def test_what_is_consumed_is_published_once_it_is_committed(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    tier.consumed([*messages(10, 13), *messages(13, 15, time_ms=T + MINUTE_MS, key=b"abc")])
    text = tier.metadata("clicks", 0, 15)
    tier.tick()
    assert audit_topic.reports == []
    tier.committed("clicks", 0, 15)
    (report,) = audit_topic.reports
    assert (report.tier, report.source, report.topic, report.partition) == (Tier.CONSUMED, "billing", "clicks", 0)
    assert (report.start_offset, report.end_offset) == (10, 15)
    assert list(report.counts) == [
        Count(T, T + MINUTE_MS, 3, 15),
        Count(T + MINUTE_MS, T + 2 * MINUTE_MS, 2, 16),
    ]
    assert pending_reports(text) == [report]


def test_messages_of_several_partitions_are_counted_separately(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    tier.consumed([*messages(0, 2), *messages(7, 8, partition=1), *messages(2, 3), *messages(8, 10, partition=1)])
    for partition, end_offset in ((0, 3), (1, 10)):
        tier.metadata("clicks", partition, end_offset)
        tier.committed("clicks", partition, end_offset)
    assert audit_topic.ranges == [(0, 3), (7, 10)]
    assert [report.counts[0].messages for report in audit_topic.reports] == [3, 3]


def test_a_report_stays_in_the_metadata_until_it_is_known_to_be_published(
    tier: ConsumedTier, audit_topic: AuditTopic
) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    tier.consumed(messages(5, 9))
    assert [report.end_offset for report in pending_reports(tier.metadata("clicks", 0, 9))] == [5, 9]
    tier.committed("clicks", 0, 9)
    audit_topic.answer_all()
    assert pending_reports(tier.metadata("clicks", 0, 9)) == []
    assert audit_topic.ranges == [(0, 5), (5, 9)]


def test_a_report_that_could_not_be_published_is_tried_again(
    tier: ConsumedTier, audit_topic: AuditTopic, clock: ManualClock
) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    audit_topic.answer_all(is_stored=False)
    tier.tick()
    assert len(audit_topic.reports) == 1
    clock.advance_ms(5000)
    tier.tick()
    first, second = audit_topic.reports
    assert first == second
    clock.advance_ms(5000)
    tier.tick()
    assert len(audit_topic.reports) == 2, "one is still on its way"


def test_a_successor_publishes_what_it_finds_and_goes_on_from_there(
    tier: ConsumedTier, open_tier: Callable[[], ConsumedTier], audit_topic: AuditTopic
) -> None:
    tier.consumed(messages(0, 5))
    stored = tier.metadata("clicks", 0, 5)
    tier.consumed(messages(5, 8))  # it dies before it commits these, and before its commit is confirmed
    successor = open_tier()
    successor.assigned("clicks", 0, stored)
    successor.consumed(messages(6, 9))  # offset 5 may hold a marker
    successor.metadata("clicks", 0, 9)
    successor.committed("clicks", 0, 9)
    assert audit_topic.ranges == [(0, 5), (5, 9)]
    assert audit_topic.total() == 8


def test_what_predecessor_and_successor_publish_counts_once(
    tier: ConsumedTier, open_tier: Callable[[], ConsumedTier], audit_topic: AuditTopic
) -> None:
    tier.consumed(messages(0, 5))
    stored = tier.metadata("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    open_tier().assigned("clicks", 0, stored)
    assert len(audit_topic.reports) == 2
    assert audit_topic.total() == 5


def test_what_was_consumed_and_not_committed_is_forgotten_with_the_partition(
    tier: ConsumedTier, audit_topic: AuditTopic
) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)  # this commit fails
    tier.consumed(messages(5, 6))
    tier.revoked("clicks", 0)
    tier.assigned("clicks", 0, "")
    tier.consumed(messages(0, 3))
    tier.metadata("clicks", 0, 3)
    tier.committed("clicks", 0, 3)
    tier.close()
    assert audit_topic.ranges == [(0, 3)]


def test_the_next_commit_covers_one_that_failed(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.consumed(messages(5, 7))
    text = tier.metadata("clicks", 0, 7)
    tier.committed("clicks", 0, 7)
    assert audit_topic.ranges == [(0, 5), (5, 7)]
    assert total(pending_reports(text)) == 7


def test_an_older_commit_publishes_only_what_belongs_to_it(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.consumed(messages(5, 7))
    tier.metadata("clicks", 0, 7)
    tier.committed("clicks", 0, 5)
    assert audit_topic.ranges == [(0, 5)]
    tier.committed("clicks", 0, 7)
    assert audit_topic.ranges == [(0, 5), (5, 7)]


def test_going_back_counts_again_from_the_first_message_consumed(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    audit_topic.answer_all()
    tier.consumed(messages(5, 8))
    tier.metadata("clicks", 0, 8)  # this commit fails
    tier.moved("clicks", 0)
    tier.consumed(messages(2, 4))
    text = tier.metadata("clicks", 0, 4)
    tier.committed("clicks", 0, 4)
    assert audit_topic.ranges == [(0, 5), (2, 4)]
    assert [(report.start_offset, report.end_offset) for report in pending_reports(text)] == [(2, 4)]


def test_a_commit_that_is_confirmed_after_a_seek_still_counts(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.moved("clicks", 0)
    tier.committed("clicks", 0, 5)
    assert audit_topic.ranges == [(0, 5)]
    tier.consumed(messages(0, 1))
    assert len(pending_reports(tier.metadata("clicks", 0, 1))) == 2


def test_a_commit_without_new_messages_has_no_new_report(tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    assert pending_reports(tier.metadata("clicks", 0, 3)) == []
    tier.consumed(messages(3, 5))
    metadata = tier.metadata("clicks", 0, 5)
    assert len(pending_reports(metadata)) == 1
    assert tier.metadata("clicks", 0, 5) == metadata
    tier.committed("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    tier.committed("views", 0, 5)
    assert audit_topic.ranges == [(3, 5)]


def test_metadata_stays_short_however_many_windows_and_unpublished_reports_there_are(
    tier: ConsumedTier, audit_topic: AuditTopic
) -> None:
    offset = 0
    for _ in range(50):
        for _ in range(30):
            tier.consumed(messages(offset, offset + 3, time_ms=T + offset * MINUTE_MS))
            offset += 3
        text = tier.metadata("clicks", 0, offset)
        tier.committed("clicks", 0, offset)
        assert len(text.encode()) <= MAX_METADATA_BYTES
        assert len(pending_reports(text)) <= MAX_REPORTS
    assert total(pending_reports(text)) == offset
    tier.consumed(messages(offset, offset + 1))
    while audit_topic.waiting:  # at last they can be published
        audit_topic.answer_all()
        tier.tick()
    tier.metadata("clicks", 0, offset + 1)
    tier.committed("clicks", 0, offset + 1)
    while audit_topic.waiting:
        audit_topic.answer_all()
        tier.tick()
    assert audit_topic.total() == offset + 1


def test_committed_reports_that_were_merged_for_a_failed_commit_are_not_lost(
    tier: ConsumedTier, audit_topic: AuditTopic
) -> None:
    for offset in range(MAX_REPORTS - 1):
        tier.consumed(messages(offset, offset + 1))
        tier.metadata("clicks", 0, offset + 1)
        tier.committed("clicks", 0, offset + 1)
    tier.consumed(messages(MAX_REPORTS - 1, MAX_REPORTS + 9))
    text = tier.metadata("clicks", 0, MAX_REPORTS + 9)  # this commit fails
    assert len(pending_reports(text)) == MAX_UNDER_WAY + 1
    tier.moved("clicks", 0)
    tier.consumed(messages(0, 1))
    assert total(pending_reports(tier.metadata("clicks", 0, 1))) == MAX_REPORTS


def test_merged_reports_still_count_when_their_own_commit_is_confirmed(
    tier: ConsumedTier, audit_topic: AuditTopic
) -> None:
    for offset in range(MAX_UNPUBLISHED + 1):
        tier.consumed(messages(offset, offset + 1))
        tier.metadata("clicks", 0, offset + 1)  # the last of these commits, with all of them merged, fails
    tier.moved("clicks", 0)
    tier.committed("clicks", 0, MAX_UNPUBLISHED)
    tier.close()
    assert audit_topic.total() == MAX_UNPUBLISHED


def test_a_report_that_is_known_to_be_stored_is_not_published_again(
    tier: ConsumedTier, audit_topic: AuditTopic, clock: ManualClock
) -> None:
    tier.consumed(messages(0, 5))
    tier.metadata("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    tier.consumed(messages(5, 9))
    tier.metadata("clicks", 0, 9)
    audit_topic.answer_all()
    tier.committed("clicks", 0, 9)
    clock.advance_ms(5000)
    tier.tick()
    tier.close()
    assert audit_topic.ranges == [(0, 5), (5, 9)]


def test_a_group_whose_name_leaves_no_room_has_no_metadata() -> None:
    report = Report(Tier.CONSUMED, "g" * 4000, "clicks", [Count(T, T + 1, 1, 1)], T, 0, 0, 1)
    assert encode_metadata("g" * 4000, TopicPartition("clicks", 0), 1, [report]) == ""


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "somebody else's",
        '{"skylog.audit":2,"end":1,"reports":[]}',
        '{"skylog.audit":1}',
        '["skylog.audit"]',
        '{"skylog.audit":1,"group":"g","topic":"t","partition":0,"end":1,"reports":[[1,2]]}',
        '"skylog.audit"',
    ],
)
def test_foreign_metadata_holds_no_reports(text: str | None, tier: ConsumedTier, audit_topic: AuditTopic) -> None:
    assert pending_reports(text) == []
    tier.assigned("clicks", 0, text)
    tier.consumed(messages(4, 5))
    tier.metadata("clicks", 0, 5)
    tier.committed("clicks", 0, 5)
    assert audit_topic.ranges == [(4, 5)]


def test_a_window_that_is_too_short_is_refused() -> None:
    with pytest.raises(ConfigError, match="window_ms=0"):
        ConsumerAudit(window_ms=0)


class Group:
    """A partition, its commits, its members one after the other, and everything that can fail between them."""

    def __init__(self, origin: str) -> None:
        self.dice = random.Random(origin)
        self.clock = ManualClock(T)
        self.stored: dict[str, Report] = {}
        self.waiting: list[Done] = []
        self.committed = (0, "")
        self.position = 0
        self.uncommitted = self.truth = 0
        self.is_unsure = False
        self.confirmations: list[int] = []
        self.start_member()

    def publish(self, _: str, value: bytes, done: Done) -> None:
        report = Report.decode(value)
        if self.dice.random() < 0.3:
            self.waiting.append(lambda _: done(False))
            return
        before = self.stored.setdefault(report.id, report)
        assert sum(row.messages for row in before.counts) == sum(row.messages for row in report.counts)
        self.waiting.append(done)

    def start_member(self) -> None:
        self.tier = ConsumerAudit(clock=self.clock).open_consumer("billing", self.publish)
        self.waiting.clear()
        self.confirmations.clear()
        self.position, metadata = self.committed
        self.uncommitted = 0
        self.is_unsure = False
        self.tier.assigned("clicks", 0, metadata)

    def consume(self) -> None:
        count = self.dice.randrange(1, 5)
        self.tier.consumed(messages(self.position, self.position + count, time_ms=T + self.position * 10_000))
        self.position += count
        self.uncommitted += count

    def commit(self) -> None:
        metadata = self.tier.metadata("clicks", 0, self.position)
        assert len(metadata) <= MAX_METADATA_BYTES
        if self.dice.random() < 0.7:
            self.committed = (self.position, metadata)
            self.truth += self.uncommitted
            self.uncommitted = 0
            self.is_unsure = self.dice.random() < 0.1
            if not self.is_unsure:
                self.confirmations.append(self.position)

    def confirm(self) -> None:
        while self.confirmations and self.dice.random() < 0.7:
            self.tier.committed("clicks", 0, self.confirmations.pop(0))

    def answer(self) -> None:
        while self.waiting and self.dice.random() < 0.7:
            self.waiting.pop(self.dice.randrange(len(self.waiting)))(self.dice.random() < 0.8)

    def pass_time(self) -> None:
        self.clock.advance_ms(6000)
        self.tier.tick()

    def go_back(self) -> None:
        if self.is_unsure:
            return  # if it is unknown what is committed, it is unknown what to forget
        while self.confirmations:
            self.tier.committed("clicks", 0, self.confirmations.pop(0))
        self.position = self.dice.randrange(self.position + 1)
        self.uncommitted = 0
        self.tier.moved("clicks", 0)

    def run(self, steps: int) -> None:
        actions = [self.consume, self.commit, self.confirm, self.answer, self.pass_time]
        for _ in range(steps):
            self.dice.choice(actions)()
            if self.dice.random() < 0.02:
                self.dice.choice([self.start_member, self.go_back])()


@pytest.mark.parametrize("number", range(100))
def test_whatever_fails_every_committed_message_counts_once(number: int) -> None:
    group = Group(f"{seed()}/{number}")
    group.run(300)
    reports = {report.id: report for report in pending_reports(group.committed[1])} | group.stored
    assert total(list(reports.values())) == group.truth
