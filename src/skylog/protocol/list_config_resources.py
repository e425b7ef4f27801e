"""ListConfigResources (key 74), version 0: the names of client metrics subscriptions (KIP-1000).

Kafka 3.9 calls it ListClientMetricsResources. The later name comes with version 1, which lists other resources too.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@message(api_key=74, versions="0", flexible="0+")
class ListConfigResourcesRequest(Message):
    pass


@struct
class ListedConfigResource:
    resource_name: str = field("0+")


@message(api_key=74, versions="0", flexible="0+")
class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    config_resources: list[ListedConfigResource] = field("0+", default_factory=list)
