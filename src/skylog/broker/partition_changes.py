"""Changes partitions on request: elections and reassignments. Each partition has a result of its own.

Any broker may do this, not only the controller: a change is committed against the state of the topic that it was
decided on, and against the incarnations of the brokers that it elects.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from skylog.broker.store_errors import as_kafka_errors
from skylog.cluster import ClusterMetadata, PartitionImage, TopicImage, VersionCheck, VersionConflictError
from skylog.cluster.elections import Brokers, ElectionRules
from skylog.cluster.metadata import checks_of_elected
from skylog.errors import ErrorCode, KafkaError

TOPICS_AT_ONCE: Final = 50
PARTITIONS_AT_ONCE: Final = 1000

PartitionDecision = Callable[[PartitionImage, Brokers, ElectionRules], PartitionImage]
"""Returns the new state of a partition. Raises KafkaError if there is none."""

Decisions = Mapping[int, PartitionDecision]
"""By partition."""

Results = dict[int, KafkaError | None]
"""By partition: None, or the error."""


class PartitionChanges:
    """Changes partitions by compare-and-set, and waits until the image has the changes."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        rules: Callable[[TopicImage], ElectionRules],
        is_member: Callable[[], bool],
    ) -> None:
        """`is_member` tells whether this broker is part of the cluster now: otherwise its image may be outdated."""
        self._metadata = metadata
        self._rules = rules
        self._is_member = is_member

    async def apply(self, wanted: Mapping[str, Decisions], timeout_s: float) -> dict[str, Results]:
        """Change partitions of several topics. Return the results by topic."""
        results: dict[str, Results] = {name: {} for name in wanted}
        for parts in _portions(wanted):
            found = await asyncio.gather(*(self._change(*part, timeout_s) for part in parts))
            for (name, _), each in zip(parts, found, strict=True):
                results[name].update(each)
            await asyncio.sleep(0)
        return results

    async def _change(self, name: str, decisions: Decisions, timeout_s: float) -> Results:
        change = _Change(self._metadata, self._rules, decisions)
        try:
            if not self._is_member():
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not part of the cluster now; try again")
            topic = self._metadata.image.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
            with as_kafka_errors():
                await change.commit(topic, timeout_s)
        except KafkaError as error:
            return {index: change.results.get(index) or error for index in decisions}
        return change.results


def _portions(wanted: Mapping[str, Decisions]) -> Iterator[list[tuple[str, Decisions]]]:
    """Split a request into portions that do not hold the event loop for long. Each has a topic at most once."""
    portion: list[tuple[str, Decisions]] = []
    room = PARTITIONS_AT_ONCE
    for name, decisions in wanted.items():
        remaining = iter(decisions.items())
        while some := dict(islice(remaining, room)):
            portion.append((name, some))
            room -= len(some)
            if room == 0 or len(portion) == TOPICS_AT_ONCE:
                yield portion
                portion, room = [], PARTITIONS_AT_ONCE
    if portion:
        yield portion


class _Change:
    """A change of one topic. `results` and `checks` belong to the last decision."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        rules: Callable[[TopicImage], ElectionRules],
        decisions: Decisions,
    ) -> None:
        self._metadata = metadata
        self._rules = rules
        self._decisions = decisions
        self.results: Results = {}
        self._checks: list[VersionCheck] = []

    async def commit(self, topic: TopicImage, timeout_s: float) -> None:
        """Commit the change. Raises KafkaError."""
        deadline = asyncio.get_running_loop().time() + max(timeout_s, 0)
        while True:
            try:
                await self._metadata.change_topic(topic, self._decide, self._checks)
            except VersionConflictError:  # a broker has started again, which the image will show
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._metadata.next_image()
                except TimeoutError:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a broker has just started; try again") from None
            else:
                return

    def _decide(self, topic: TopicImage) -> TopicImage:
        brokers, rules = self._metadata.image.brokers, self._rules(topic)
        partitions = list(topic.partitions)
        for index, decide in self._decisions.items():
            try:
                if not 0 <= index < len(partitions):
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic.name}-{index}"
                    )
                partitions[index] = decide(partitions[index], brokers, rules)
                self.results[index] = None
            except KafkaError as error:
                self.results[index] = error
        if all(new is old for new, old in zip(partitions, topic.partitions, strict=True)):
            return topic
        changed = dataclasses.replace(topic, partitions=tuple(partitions))
        self._checks[:] = checks_of_elected([(topic, changed)], brokers)
        return changed
