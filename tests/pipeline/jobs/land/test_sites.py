"""Several sites in one aggregate cluster: mirrored with prefixes, read together by pattern, landed by one job."""

from __future__ import annotations

import uuid
from pathlib import Path

from pyspark.sql import SparkSession

from skylog import Admin, Consumer
from skylog.client.connection import Connection
from skylog.client.mirrors import MirrorAdmin
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.jobs.land import LandSettings, land, matching_topics
from skylog.testing import BrokerProcess, wait_until
from tests.pipeline.delta_readers import query

from .test_land import send

SITES = ("east", "west")


def test_one_job_lands_the_topics_of_all_sites(
    spark: SparkSession, skylog_broker: BrokerProcess, tmp_path: Path
) -> None:
    aggregate, topic = skylog_broker.bootstrap, f"clicks-{uuid.uuid4().hex[:8]}"
    mirrors = MirrorAdmin(Connection(aggregate))
    with BrokerProcess() as east, BrokerProcess() as west:
        for site, broker in zip(SITES, (east, west), strict=True):
            Admin(broker.bootstrap).create_topic(topic, 2)
            send(broker.bootstrap, topic, range(10), server=site)
            mirrors.create(site, broker.bootstrap, [topic], prefix=f"{site}.")

        def copied() -> int:
            return sum(each.offset or 0 for site in SITES for each in mirrors.describe(site).partitions)

        wait_until(lambda: copied() == 20, "both mirrors")
        for site in SITES:
            mirrors.delete(site)
    with Consumer(rf"^.*\.{topic}", group=topic, bootstrap=aggregate) as consumer:
        read: list[tuple[str, object]] = []
        while len(read) < 20:
            read += [(each.topic, each.json()["server"]) for each in consumer.consume(timeout_s=10)]
    assert sorted(set(read)) == [(f"{site}.{topic}", site) for site in SITES]
    options = {"kafka.bootstrap.servers": aggregate, "subscribePattern": rf".*\.{topic}"}
    rows = spark.read.format("skylog").options(**options).load().groupBy("topic").count().collect()
    assert sorted(tuple(row) for row in rows) == [(f"{site}.{topic}", 10) for site in SITES]
    land(spark, aggregate, matching_topics(Cluster(aggregate), rf".*\.{topic}"), LandSettings(tmp_path))
    for site in SITES:
        found = query(
            tmp_path / f"{site}.{topic}", "SELECT count(*), count(DISTINCT id), min(server), max(server) FROM t"
        )
        assert found == [(10, 10, site, site)]
