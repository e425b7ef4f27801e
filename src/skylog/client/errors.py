"""What goes wrong on the way to a cluster, said so that the reader knows what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from skylog.errors import ErrorCode, KafkaError, SkylogError


class BrokerUnreachableError(SkylogError):
    """No broker answers at the bootstrap address."""

    def __init__(self, bootstrap: str, reason: str) -> None:
        super().__init__(
            f"no broker can be reached at {bootstrap} ({reason}); is one running? start one with: skylog serve"
        )
        self.bootstrap = bootstrap


class TopicNotFoundError(KafkaError):
    """A topic that the cluster does not have. `nearest` are the names that it may have been meant to be."""

    def __init__(self, topic: str, known: Iterable[str]) -> None:
        self.topic = topic
        self.nearest = tuple(difflib.get_close_matches(topic, list(known), n=3))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else "see: skylog topics list"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'; {hint}")
