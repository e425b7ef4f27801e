"""Two stages of stream processing that are joined by topics; see README.md. `python stages.py --once` runs both.

page_views ──1: by page──▶ views_by_page ──2: count, join──▶ page_statistics
                                              pages ──────────┘
"""

from __future__ import annotations

import argparse
import logging
import signal
from pathlib import Path
from threading import Event

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them
from pyspark.sql.streaming.query import StreamingQuery

from skylog.spark.jobs.event_fields import event_fields
from skylog.spark.jobs.materialize import changes, materialize
from skylog.spark.jobs.rekey import Rekey
from skylog.spark.jobs.runner import Progress, run_queries
from skylog.spark.jobs.schedule import CONTINUOUS, ONCE, Schedule
from skylog.spark.jobs.target_topic import ensure_topic
from skylog.spark.session import start_session

VIEWS, VIEWS_BY_PAGE, PAGES, STATISTICS = "page_views", "views_by_page", "pages", "page_statistics"

logger = logging.getLogger("stages")


def page_statistics(views: DataFrame, pages: DataFrame) -> DataFrame:
    """Views and mean dwell time of each page that was viewed, with what is known of the page; as rows for a topic."""
    by_page = (
        event_fields(views)
        .where("event = 'page.view' AND record.key IS NOT NULL")
        .groupBy(F.expr("CAST(record.key AS STRING)").alias("page"))
        .agg(F.count("*").alias("views"), F.avg(F.expr("CAST(attributes.dwell_s AS DOUBLE)")).alias("dwell_s"))
    )
    joined = by_page.join(pages.select("page", "title", "section"), "page", "left")
    return joined.select(F.col("page").alias("key"), F.to_json(F.struct("*")).alias("value"))


def first_stage(spark: SparkSession, bootstrap: str, state: Path, schedule: Schedule) -> StreamingQuery:
    """Views come keyed by user, and go on keyed by page."""
    return Rekey(bootstrap, [VIEWS], VIEWS_BY_PAGE, "attributes.page", state / "1", group="stage-1").start(
        spark, schedule
    )


def second_stage(spark: SparkSession, bootstrap: str, state: Path, schedule: Schedule) -> StreamingQuery:
    """Each micro-batch writes the numbers of all pages; compaction keeps the last. Spark has them in the checkpoint."""
    topics = spark.read.format("skylog").option("kafka.bootstrap.servers", bootstrap)
    pages = materialize(changes(topics.option("subscribe", PAGES).load(), "page STRING, title STRING, section STRING"))
    views = (
        spark.readStream.format("skylog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", VIEWS_BY_PAGE)
        .option("startingOffsets", "earliest")
        .option("groupId", "stage-2")
        .load()
    )
    return (
        page_statistics(views, pages)
        .writeStream.format("skylog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", STATISTICS)
        .option("checkpointLocation", str(state.absolute() / "2"))
        .outputMode("complete")  # a sink in Python is offered append and complete only
        .trigger(**schedule.trigger)
        .start()
    )


def run(spark: SparkSession, bootstrap: str, state: Path, *, once: bool) -> None:
    """Both stages side by side, until Ctrl-C; or one after the other, until each is through."""
    ensure_topic(bootstrap, VIEWS_BY_PAGE, 4)
    ensure_topic(bootstrap, STATISTICS, 1, {"cleanup.policy": "compact"})
    stop = Event()
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    if once:
        run_queries("stage 1", [first_stage(spark, bootstrap, state, ONCE)], stop, log_progress)
        run_queries("stage 2", [second_stage(spark, bootstrap, state, ONCE)], stop, log_progress)
    else:
        stages = [stage(spark, bootstrap, state, CONTINUOUS) for stage in (first_stage, second_stage)]
        run_queries("stages", stages, stop, log_progress)


def log_progress(progress: Progress) -> None:
    logger.info("%s: %d records in %.1f s", progress.job, progress.records, progress.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Views of pages, counted in two stages.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--state", type=Path, default=Path("stages-state"), help="where progress is kept")
    parser.add_argument("--once", action="store_true", help="work through what is there, and end")
    parser.add_argument("--master", default="local[*]", help="the Spark cluster")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = start_session("two-stages", arguments.master)
    try:
        run(spark, arguments.bootstrap, arguments.state, once=arguments.once)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
