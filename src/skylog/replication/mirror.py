"""The definition of a mirror: which topics and groups of another cluster are copied, and what has become of each topic.

A mirror lives on the target cluster. A topic that it has taken on belongs to it by name, and goes through these states:

    MIRRORING  the leaders copy from the source; clients cannot write
    PROMOTING  the leaders have stopped copying, and end the transactions that the source has left open
    PROMOTED   an ordinary topic, which the mirror never touches again

Each partition finishes its promotion by itself, and the definition remembers which ones have. So a broker that dies in
the middle leaves the rest to the next leader.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from skylog.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")
_WILDCARDS: Final = frozenset("*?[")
MIRROR_KEY: Final = "mirrored.from"
"""The name under which DescribeConfigs shows that a topic is a mirror, and of which cluster."""
OWN_PREFIX: Final = "_skylog"
"""Topics in which skylog keeps its own state: a pattern does not select them."""

TARGET_CONFIGS: Final = frozenset(
    {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Settings that depend on the brokers of a cluster. The target keeps its own."""


class TopicState(StrEnum):
    MIRRORING = "mirroring"
    PROMOTING = "promoting"
    PROMOTED = "promoted"


@dataclass(frozen=True, slots=True)
class MirrorTopic:
    """A topic of the target: the topic of the source that it mirrors, with that one's id where the source has ids.

    `finished` has the partitions whose promotion is complete. A topic that was there before the mirror `is_adopted`.
    """

    source: str
    source_id: str = ""
    state: TopicState = TopicState.MIRRORING
    finished: frozenset[int] = frozenset()
    is_adopted: bool = False

    def owns(self, partition: int) -> bool:
        """Whether clients cannot write to the partition yet."""
        return self.state is not TopicState.PROMOTED and partition not in self.finished

    def to_value(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "source_id": self.source_id,
            "state": self.state.value,
            "finished": sorted(self.finished),
            "adopted": self.is_adopted,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> MirrorTopic:
        return cls(
            value["source"],
            value["source_id"],
            TopicState(value["state"]),
            frozenset(value["finished"]),
            value.get("adopted", False),
        )


@dataclass(frozen=True, slots=True)
class Mirror:
    """A mirror. `client` has the settings of the connection to the source, with secrets.

    `topics` and `groups` are names and patterns with `*`, `?` and `[…]`. `mirrored` has the topics by their names on
    the target. A mirror that `adopts` takes on topics that the target has already, and continues their logs. One that
    `is_ending` is removed when all of its topics are promoted.
    """

    name: str
    source: str
    topics: tuple[str, ...]
    groups: tuple[str, ...] = ()
    prefix: str = ""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_paused: bool = False
    is_ending: bool = False
    mirrored: Mapping[str, MirrorTopic] = field(default_factory=dict)
    adopts: bool = False

    def check(self) -> None:
        """Raise ConfigError if the definition makes no sense."""
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"'{self.name}' is not a name for a mirror: use letters, digits, '.', '_' and '-'")
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(f"the prefix '{self.prefix}' may have letters, digits, '.', '_' and '-'")
        if not self.topics:
            raise ConfigError("a mirror needs at least one topic: --topics 'clicks,orders.*'")
        if not self.addresses():
            raise ConfigError("a mirror needs the address of its source: --from HOST:PORT")

    def addresses(self) -> list[tuple[str, int]]:
        """Return the bootstrap servers of the source. Raises ConfigError."""
        found = []
        for each in filter(None, (text.strip() for text in self.source.split(","))):
            host, _, port = each.rpartition(":")
            if not host or not port.isdigit():
                raise ConfigError(f"'{each}' is not an address: expected HOST:PORT")
            found.append((host.strip("[]"), int(port)))
        return found

    def selects(self, topic: str, *, is_internal: bool) -> bool:
        """Whether a topic of the source is selected. Internal ones of Kafka never are; patterns skip skylog's own."""
        if is_internal or topic.startswith("__"):
            return False
        return self.names(topic) or (not topic.startswith(OWN_PREFIX) and _matches(topic, self.topics))

    def names(self, topic: str) -> bool:
        """Whether a topic of the source is selected by its name, not only by a pattern."""
        return topic in self.topics

    def selects_group(self, group: str) -> bool:
        return _matches(group, self.groups)

    def target_of(self, topic: str) -> str:
        return self.prefix + topic

    def target_names(self) -> dict[str, str]:
        """Return the names on the target of the topics that are being mirrored, by their names at the source."""
        return {topic.source: target for target, topic in self.mirrored.items() if topic.state is TopicState.MIRRORING}

    # -- changes

    def with_topic(self, target: str, topic: MirrorTopic) -> Mirror:
        return replace(self, mirrored={**self.mirrored, target: topic})

    def without_topic(self, target: str) -> Mirror:
        return replace(self, mirrored={name: topic for name, topic in self.mirrored.items() if name != target})

    def promote(self, targets: Collection[str] | None = None) -> Mirror:
        """Begin to promote topics, by default all. Raises ConfigError for a name that is not mirrored."""
        unknown = sorted(set(targets or ()) - self.mirrored.keys())
        if unknown:
            raise ConfigError(f"the mirror '{self.name}' has no topic '{unknown[0]}' on this cluster")
        changed = dict(self.mirrored)
        for name in self.mirrored if targets is None else targets:
            if changed[name].state is TopicState.MIRRORING:
                changed[name] = replace(changed[name], state=TopicState.PROMOTING)
        return replace(self, mirrored=changed)

    def finish(self, target: str, partitions: Iterable[int], count: int) -> Mirror:
        """Note that the promotion of some partitions of a topic, which has `count` of them, is complete."""
        topic = self.mirrored.get(target)
        if topic is None or topic.state is not TopicState.PROMOTING:
            return self
        finished = topic.finished | set(partitions)
        if len(finished) >= count:
            return self.with_topic(target, replace(topic, state=TopicState.PROMOTED, finished=frozenset()))
        return self.with_topic(target, replace(topic, finished=finished))

    @property
    def has_ended(self) -> bool:
        return self.is_ending and all(each.state is TopicState.PROMOTED for each in self.mirrored.values())

    # -- stored and described

    def to_value(self) -> dict[str, Any]:
        return {
            **self.describe(),
            "client": dict(self.client),
            "mirrored": {target: topic.to_value() for target, topic in self.mirrored.items()},
        }

    def describe(self) -> dict[str, Any]:
        """Return the definition without its topics and without the login to the source."""
        return {
            "name": self.name,
            "source": self.source,
            "topics": list(self.topics),
            "groups": list(self.groups),
            "prefix": self.prefix,
            "adopts": self.adopts,
            "paused": self.is_paused,
            "ending": self.is_ending,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Mirror:
        return cls(
            value["name"],
            value["source"],
            tuple(value["topics"]),
            tuple(value["groups"]),
            value["prefix"],
            value["client"],
            value["paused"],
            value["ending"],
            {target: MirrorTopic.from_value(topic) for target, topic in value["mirrored"].items()},
            value.get("adopts", False),
        )


def split_patterns(text: str) -> tuple[str, ...]:
    """Return the parts of a list such as `clicks,orders.*`."""
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))


def followed_configs(source: Mapping[str, str], target: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return the settings of a mirror topic: those of the source that the target knows, and the target's own."""
    followed = {key: value for key, value in source.items() if key in known and key not in TARGET_CONFIGS}
    return {key: value for key, value in target.items() if key in TARGET_CONFIGS} | followed


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name == each or (_WILDCARDS & set(each) and fnmatchcase(name, each)) for each in patterns)
