"""Keeps the topics of a mirror like those of the source: creates them, adds partitions, follows their settings.

Runs on the controller. A topic belongs to the mirror before it is created, so no client ever writes to it. Topics that
are deleted at the source stay. A mirror can adopt topics that are there before it. What clients still write until all
leaders know of it is no danger: the logs are compared before anything is copied.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from skylog.broker.config_descriptions import ConfigSource, ResourceType
from skylog.broker.mirroring.source import Source, SourceImage, SourceTopic
from skylog.cluster import TopicImage
from skylog.config import settings
from skylog.errors import ErrorCode, KafkaError
from skylog.model import check_topic_name
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResult
from skylog.replication.mirror import MIRROR_KEY, Mirror, MirrorTopic, TopicState, followed_configs
from skylog.storage import LogConfig

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.mirroring.mirrors import Mirrors

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 500


class TopicKeeper:
    """Keeps the topics of one mirror. `problems` has the topics of the source that cannot be mirrored, and why."""

    def __init__(self, broker: Broker, mirrors: Mirrors, source: Source) -> None:
        self._broker = broker
        self._mirrors = mirrors
        self._source = source
        self.problems: dict[str, str] = {}

    async def run(self, mirror: Mirror, image: SourceImage) -> None:
        """Compare all selected topics, and change what differs. Raises PeerError and SessionExpiredError."""
        promoted = {each.source for each in mirror.mirrored.values() if each.state is not TopicState.MIRRORING}
        selected = {
            name: topic
            for name, topic in image.topics.items()
            if name not in promoted and mirror.selects(name, is_internal=topic.is_internal)
        }
        configs = await self._configs(selected)
        problems: dict[str, str] = {
            name: "the source has no such topic" for name in mirror.topics if self._is_missing(mirror, image, name)
        }
        for name, topic in selected.items():
            found = configs.get(name)
            if isinstance(found, str):
                problems[name] = found
                continue
            if found is None or (MIRROR_KEY in found and not mirror.names(name)):
                continue  # deleted meanwhile; or a mirror itself, which would come back to where it is from
            try:
                await self._keep(mirror, name, topic, found)
            except KafkaError as error:
                problems[name] = error.message or error.code.name
        for name, problem in problems.items():
            if self.problems.get(name) != problem:
                logger.error("mirror %s: topic %s of the source is not mirrored: %s", mirror.name, name, problem)
        self.problems = problems

    def _is_missing(self, mirror: Mirror, image: SourceImage, name: str) -> bool:
        is_plain = not set("*?[") & set(name)
        return is_plain and name not in image.topics and mirror.target_of(name) not in mirror.mirrored

    async def _configs(self, names: Iterable[str]) -> dict[str, dict[str, str] | str]:
        """Return the settings that topics of the source have themselves, or why they cannot be read."""
        wanted = list(names)
        found: dict[str, dict[str, str] | str] = {}
        for at in range(0, len(wanted), _AT_ONCE):
            resources = [
                DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name)
                for name in wanted[at : at + _AT_ONCE]
            ]
            for row in (await self._source.ask(None, DescribeConfigsRequest(resources=resources))).results:
                if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                found[row.resource_name] = _overrides(row)
        return found

    async def _keep(self, mirror: Mirror, name: str, topic: SourceTopic, configs: Mapping[str, str]) -> None:
        target, topics = mirror.target_of(name), self._broker.topics
        known = self._broker.metadata.image.topics.get(target)
        if target not in mirror.mirrored:
            check_topic_name(target)
            self._check_can_take_on(mirror, target, known, len(topic.leaders), configs)
            added = MirrorTopic(name, topic.known_id, is_adopted=known is not None)
            await self._mirrors.change(mirror.name, lambda current: _take_on(current, target, added))
        count = len(topic.leaders)
        if known is None:
            wanted = followed_configs(configs, {}, settings(LogConfig))
            await topics.create(target, topics.plan(target, count, configs=wanted), wanted)
            logger.info("mirror %s: created topic %s with %d partitions", mirror.name, target, count)
            return
        if count > len(known.partitions):
            known = await topics.grow(known, topics.plan_growth(known, count, None))
            logger.info("mirror %s: topic %s has %d partitions now", mirror.name, target, count)
        if followed_configs(configs, known.configs, settings(LogConfig)) != known.configs:
            await topics.configure(known, lambda before: followed_configs(configs, before, settings(LogConfig)))
            logger.info("mirror %s: topic %s has the settings of the source again", mirror.name, target)

    def _check_can_take_on(
        self, mirror: Mirror, target: str, known: TopicImage | None, count: int, configs: Mapping[str, str]
    ) -> None:
        owner = self._mirrors.owner(target)
        if owner is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the mirror '{owner.name}' has the topic '{target}'")
        if known is None:
            return
        if not mirror.adopts:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"this cluster has a topic '{target}' of its own; choose a --prefix, delete it, or continue it with "
                "--adopt",
            )
        _check_can_adopt(target, known, count, configs)


def _check_can_adopt(target: str, known: TopicImage, count: int, configs: Mapping[str, str]) -> None:
    if any("compact" in each.get("cleanup.policy", "") for each in (configs, known.configs)):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"'{target}' is compacted, so it cannot be compared with the source; delete it to copy it again",
        )
    if len(known.partitions) > count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"'{target}' has {len(known.partitions)} partitions here, and {count} at the source",
        )


def _take_on(mirror: Mirror | None, target: str, topic: MirrorTopic) -> Mirror | None:
    if mirror is None or mirror.is_ending or target in mirror.mirrored:
        return mirror
    return mirror.with_topic(target, topic)


def _overrides(row: DescribeConfigsResult) -> dict[str, str] | str:
    if row.error_code:
        known = row.error_code in ErrorCode._value2member_map_
        code = ErrorCode(row.error_code).name if known else str(row.error_code)
        return f"the source answers DescribeConfigs with {code}: {row.error_message or 'grant DESCRIBE_CONFIGS on it'}"
    return {
        each.name: each.value
        for each in row.configs
        if each.value is not None and (each.config_source == ConfigSource.TOPIC or each.name == MIRROR_KEY)
    }
