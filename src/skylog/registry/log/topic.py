"""Creates and checks the topic that holds the schemas."""

from __future__ import annotations

import logging
from typing import Final

from skylog.client import Admin, Connection, Topic
from skylog.errors import ConfigError, ErrorCode, KafkaError

logger = logging.getLogger(__name__)

REPLICAS: Final = 3
_COMPACT: Final = "compact"
_POLICY: Final = "cleanup.policy"


def ensure_topic(connection: Connection, topic: str) -> str:
    """Create the topic unless it exists. Return the id of the cluster.

    Raises ConfigError if the topic exists, but would not keep the schemas in one order.
    """
    client = connection.admin_client()
    admin, cluster = Admin(connection, client), connection.metadata(client)
    found = {each.name: each for each in admin.list_topics()}.get(topic)
    if found is None:
        _create(admin, topic, min(REPLICAS, len(cluster.brokers)))
    else:
        _check(admin, found)
    return str(cluster.cluster_id or "")


def _check(admin: Admin, found: Topic) -> None:
    topic = found.name
    if len(found.partitions) != 1:
        raise ConfigError(
            f"topic '{topic}' has {len(found.partitions)} partitions, and a registry needs exactly one; "
            "choose another --topic"
        )
    policy = next((each.value for each in admin.describe_configs(topic) if each.name == _POLICY), None)
    if policy != _COMPACT:
        raise ConfigError(
            f"topic '{topic}' has {_POLICY}={policy}, which would delete schemas; set it with: "
            f"skylog topics alter {topic} --config {_POLICY}={_COMPACT}"
        )


def _create(admin: Admin, topic: str, replicas: int) -> None:
    try:
        admin.create_topic(topic, 1, replicas, {_POLICY: _COMPACT})
        logger.info("created the topic '%s'", topic)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another registry was faster
            raise
