"""Administration: creates and deletes topics, and repeats that until the cluster says that it is done."""

from __future__ import annotations

from collections.abc import Mapping

from skylog.errors import ErrorCode
from skylog.net.peer import PeerError
from skylog.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from skylog.simulation.clients.connections import Connections


async def create_topic(connections: Connections, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create a topic with the default number of replicas."""
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=rows)
    while True:
        try:
            response = await connections.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            if response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        except PeerError:
            pass
        await connections.pause(0.5)
