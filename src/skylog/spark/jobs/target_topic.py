"""The topic that a job writes to, which need not be there yet."""

from __future__ import annotations

from collections.abc import Mapping

from skylog.client import Admin
from skylog.errors import ErrorCode, KafkaError


def ensure_topic(bootstrap: str, topic: str, partitions: int | None, configs: Mapping[str, str] | None = None) -> bool:
    """Create a topic unless it is there; whether it was made. Raises what Admin raises."""
    admin = Admin(bootstrap)
    if any(known.name == topic for known in admin.list_topics()):
        return False
    try:
        admin.create_topic(topic, partitions or -1, configs=configs)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody was faster
            raise
        return False
    return True
