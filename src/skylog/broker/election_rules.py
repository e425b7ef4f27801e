"""The rules for elections that follow from the configuration of a topic."""

from __future__ import annotations

from skylog.broker.replicas import Replicas
from skylog.cluster import TopicImage
from skylog.cluster.elections import ElectionRules


class TopicRules:
    """Returns the rules of a topic. They are kept: the controller asks for those of all topics after each change."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._known: dict[str, tuple[object, object, ElectionRules]] = {}

    def __call__(self, topic: TopicImage) -> ElectionRules:
        defaults = self._replicas.defaults
        known = self._known.get(topic.name)
        if known is not None and known[0] == topic.configs and known[1] is defaults:
            return known[2]
        config = self._replicas.config_of(topic)
        rules = ElectionRules(config.min_insync_replicas, config.unclean_leader_election_enable)
        self._known[topic.name] = topic.configs, defaults, rules
        return rules
