"""Registries of a cluster with TLS, logins and access control."""

from __future__ import annotations

from pathlib import Path

from tests.registry.registry_process import AVRO_INT, Api, running_registry, wait_for_writer
from tests.secured_cluster import secured_cluster

GROUP = "skylog-registry-_schemas"


def test_registries_work_with_the_rights_that_the_docs_name(tmp_path: Path) -> None:
    with secured_cluster(tmp_path) as cluster:
        config = cluster.user(
            "registrar",
            ["read", "write", "create", "describe", "describe-configs", "--topic", "_schemas"],
            ["read", "describe", "--group", GROUP],
            ["write", "describe", "--transactional-id", GROUP],
        )
        bootstrap, options = cluster.broker.bootstrap, ("--config", str(config))
        with running_registry(bootstrap, *options) as first, running_registry(bootstrap, *options) as second:
            login = ("registrar", "secret of a user")
            assert Api(first.url).fails("GET", "/subjects") == 401
            apis = [Api(first.url, auth=login), Api(second.url, auth=login)]
            writer = wait_for_writer(*apis)
            assert [api.register("s", AVRO_INT) for api in apis] == [1, 1]
            killed, other = (first, apis[1]) if writer is apis[0] else (second, apis[0])
            killed.kill()
            wait_for_writer(other)
            assert other.register("t", AVRO_INT) == 1
            killed.start()
