"""Creates the topics that a sink or a job writes to, if they do not exist. All of them are created here.

Spark's Kafka sink leaves it to the broker to create a topic, with `num.partitions`. So does this function if that
setting was changed. Kafka's default of one partition would make one task read what many tasks have written, so a topic
then gets `DEFAULT_PARTITIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skylog.client import Admin
from skylog.errors import ErrorCode, KafkaError

DEFAULT_PARTITIONS: Final = 6
_BROKER_DECIDES: Final = -1
_AUTO_CREATE: Final = "auto.create.topics.enable"
_NUM_PARTITIONS: Final = "num.partitions"


def ensure_topic(
    admin: Admin,
    topic: str,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    *,
    like: str = "",
) -> bool:
    """Create a topic unless it exists. Return whether it was created. Raises the errors of Admin.

    Without `partitions`, it gets as many as the topic `like`, or else the broker's `num.partitions` if that is set.
    """
    known = {each.name: each for each in admin.list_topics()}
    if topic in known:
        return False
    if partitions is None:
        partitions = len(known[like].partitions) if like in known else _default_partitions(admin)
    try:
        admin.create_topic(topic, partitions, configs=configs)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # created concurrently
            raise
        return False
    return True


def creates_topics(admin: Admin) -> bool:
    """Return whether brokers create topics that are written to."""
    return any(each.name == _AUTO_CREATE and each.value == "true" for each in admin.describe_broker_configs())


def _default_partitions(admin: Admin) -> int:
    is_set = any(each.name == _NUM_PARTITIONS and not each.is_default for each in admin.describe_broker_configs())
    return _BROKER_DECIDES if is_set else DEFAULT_PARTITIONS
