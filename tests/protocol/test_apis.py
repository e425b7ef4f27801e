"""The registry, compared with a hand-written table."""

from __future__ import annotations

import pytest

from skylog.protocol.apis import API_SPECS, ApiKey

NEVER = 10_000

# API: lowest version, highest version, first flexible version
TABLE = {
    ApiKey.PRODUCE: (3, 11, 9),
    ApiKey.FETCH: (4, 17, 12),
    ApiKey.LIST_OFFSETS: (1, 9, 6),
    ApiKey.METADATA: (0, 12, 9),
    ApiKey.OFFSET_COMMIT: (2, 9, 8),
    ApiKey.OFFSET_FETCH: (1, 9, 6),
    ApiKey.FIND_COORDINATOR: (0, 5, 3),
    ApiKey.JOIN_GROUP: (0, 9, 6),
    ApiKey.HEARTBEAT: (0, 4, 4),
    ApiKey.LEAVE_GROUP: (0, 5, 4),
    ApiKey.SYNC_GROUP: (0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: (0, 6, 5),
    ApiKey.LIST_GROUPS: (0, 5, 3),
    ApiKey.SASL_HANDSHAKE: (0, 1, NEVER),
    ApiKey.API_VERSIONS: (0, 4, 3),
    ApiKey.CREATE_TOPICS: (2, 7, 5),
    ApiKey.DELETE_TOPICS: (1, 6, 4),
    ApiKey.DELETE_RECORDS: (0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4, 3),
    ApiKey.END_TXN: (0, 4, 3),
    ApiKey.WRITE_TXN_MARKERS: (0, 1, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 4, 3),
    ApiKey.DESCRIBE_ACLS: (1, 3, 2),
    ApiKey.CREATE_ACLS: (1, 3, 2),
    ApiKey.DELETE_ACLS: (1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: (0, 4, 4),
    ApiKey.ALTER_CONFIGS: (0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4, 2),
    ApiKey.SASL_AUTHENTICATE: (0, 2, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3, 2),
    ApiKey.DELETE_GROUPS: (0, 2, 2),
    ApiKey.ELECT_LEADERS: (0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0, 0),
    ApiKey.OFFSET_DELETE: (0, 0, NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 1, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 0, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0, 0),
    ApiKey.DESCRIBE_MIRRORS: (0, 0, 0),
    ApiKey.ALTER_MIRRORS: (0, 0, 0),
}


def test_the_table_and_the_registry_name_the_same_apis() -> None:
    assert set(TABLE) == set(API_SPECS) == set(ApiKey)


@pytest.mark.parametrize("key", list(ApiKey))
def test_an_api_has_the_versions_of_the_table_in_request_and_response(key: ApiKey) -> None:
    low, high, flexible_from = TABLE[key]
    api = API_SPECS[key]
    name = "".join(part.capitalize() for part in key.name.split("_"))
    assert (api.request.__name__, api.response.__name__) == (f"{name}Request", f"{name}Response")
    for cls in (api.request, api.response):
        assert (cls.api_key, cls.versions.low, cls.versions.high) == (key, low, high)
        for version in range(low, high + 1):
            assert (version in cls.flexible) == (version >= flexible_from)


def test_only_api_versions_answers_flexible_versions_with_the_old_header() -> None:
    for key, api in API_SPECS.items():
        for version in range(api.versions.low, api.versions.high + 1):
            expected = api.is_flexible(version) and key != ApiKey.API_VERSIONS
            assert api.response_header_version(version) == expected
