"""Avro values into tables, whose columns grow with the versions of the schema."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import polars
from pyspark.sql import SparkSession

from skylog.pipeline.jobs.land import LandSettings, land
from skylog.pipeline.table import Table
from skylog.schemas.registry_client import RegistryClient
from skylog.testing import BrokerProcess
from tests.pipeline.delta_readers import query
from tests.registry.avro_messages import framed, produce
from tests.registry.registry_process import running_registry


def order(*more: dict[str, Any], number: str = "int", place: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    fields = [{"name": "city", "type": "string"}, *place]
    inner = {"type": "record", "name": "Place", "fields": fields}
    own = [{"name": "number", "type": number}, {"name": "place", "type": inner}, *more]
    return {"type": "record", "name": "Order", "fields": own}


V1 = order()
V2 = order(
    {"name": "note", "type": ["null", "string"], "default": None},
    number="long",
    place=({"name": "zip", "type": "string", "default": "?"},),
)


def test_new_versions_of_a_schema_grow_the_table(
    spark: SparkSession, skylog_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, topic = skylog_broker.bootstrap, f"orders-{uuid.uuid4().hex[:8]}"
    with running_registry(bootstrap) as registry:
        client = RegistryClient(registry.url)
        settings = LandSettings(tmp_path, upkeep=None, is_audited=False, registry=registry.url)
        first = framed(client, f"{topic}-value", V1, [{"number": 1, "place": {"city": "Bonn"}}])
        produce(bootstrap, topic, [*first, b"no frame"])
        land(spark, bootstrap, [topic], settings)
        second = [{"number": 2**40, "place": {"city": "Rome", "zip": "00100"}, "note": "x"}]
        produce(bootstrap, topic, [*framed(client, f"{topic}-value", V2, second), *first])
        land(spark, bootstrap, [topic], settings)
    columns = "number, place.city, place.zip, note"
    expected = [(1, "Bonn", None, None), (2**40, "Rome", "00100", "x"), (1, "Bonn", "?", None)]
    assert query(tmp_path / topic, f"SELECT {columns} FROM t ORDER BY _offset") == expected
    rows = Table(tmp_path / topic).read(spark).orderBy("_offset").selectExpr(*columns.split(", "))
    assert [tuple(row) for row in rows.collect()] == expected
    assert polars.read_delta(str(tmp_path / topic))["number"].to_list().count(1) == 2
    (bad,) = query(tmp_path / f"{topic}__unparsed", "SELECT value, reason FROM t")
    assert bad == (b"no frame", "the value does not begin with the id of a schema")
