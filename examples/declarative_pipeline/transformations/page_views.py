"""The streaming table `page_views`: each event of the topic once, parsed. Every run appends the new events.

Environment variables: SKYLOG_BOOTSTRAP (127.0.0.1:9092), PAGES_TOPIC (page_views).
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

FIELDS = "event STRING, user STRUCT<id: BIGINT>, attributes STRUCT<page: STRING, dwell_s: DOUBLE>"


@dp.table
def page_views() -> DataFrame:
    return (
        SparkSession.active()
        .readStream.format("skylog")
        .option("kafka.bootstrap.servers", os.environ.get("SKYLOG_BOOTSTRAP", "127.0.0.1:9092"))
        .option("subscribe", os.environ.get("PAGES_TOPIC", "page_views"))
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", FIELDS)
        .load()
        .where("event.event = 'page.view'")
        .selectExpr(
            "timestamp AS viewed_at",
            "event.user.id AS user_id",
            "event.attributes.page AS page",
            "event.attributes.dwell_s AS dwell_s",
        )
    )
