"""One module per API. The table below is what the broker serves, and so what ApiVersions tells."""

from typing import Final

from skylog.broker.api import Api
from skylog.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

APIS: Final[tuple[Api, ...]] = (
    alter_configs.API,
    api_versions.API,
    create_partitions.API,
    create_topics.API,
    delete_records.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_log_dirs.API,
    fetch.API,
    find_coordinator.API,
    incremental_alter_configs.API,
    init_producer_id.API,
    list_offsets.API,
    metadata.API,
    offset_for_leader_epoch.API,
    produce.API,
)
