"""Two stages of stream processing, connected by a topic. Run both with `python stages.py --once`; see README.md.

page_views ──1: by page──▶ views_by_page ──2: count, join──▶ page_statistics
                                              pages ──────────┘
"""

from __future__ import annotations

import argparse
import logging
import signal
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline import Cluster, Job, Progress, Topic, job
from skylog.pipeline.jobs.materialize import changes, materialize
from skylog.pipeline.jobs.rekey import OPTIONS, rekey_job
from skylog.spark.session import start_session

VIEWS, VIEWS_BY_PAGE, PAGES, STATISTICS = "page_views", "views_by_page", "pages", "page_statistics"

logger = logging.getLogger("stages")


def page_statistics(views: DataFrame, pages: DataFrame) -> DataFrame:
    """Return views and mean dwell time of each viewed page, with its title and section, as rows for a topic."""
    by_page = (
        views.where("event = 'page.view' AND key IS NOT NULL")
        .groupBy(F.expr("CAST(key AS STRING)").alias("page"))
        .agg(F.count("*").alias("views"), F.avg(F.expr("CAST(attributes.dwell_s AS DOUBLE)")).alias("dwell_s"))
    )
    joined = by_page.join(pages.select("page", "title", "section"), "page", "left")
    return joined.select(F.col("page").alias("key"), F.to_json(F.struct("*")).alias("value"))


def first_stage() -> Job:
    """Copy the views, which are keyed by user, to a topic keyed by page."""
    return rekey_job([VIEWS], Topic(VIEWS_BY_PAGE, 4), "attributes.page")


def second_stage(spark: SparkSession, bootstrap: str) -> Job:
    """Write the statistics of all pages with every micro-batch. Spark keeps them in the checkpoint."""

    # Spark supports only append and complete for Python sinks.
    @job(VIEWS_BY_PAGE, into=Topic(STATISTICS, 1, {"cleanup.policy": "compact"}), mode="complete")
    def statistics(views: DataFrame) -> DataFrame:
        topics = spark.read.format("skylog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", PAGES)
        pages = materialize(changes(topics.load(), "page STRING, title STRING, section STRING"))
        return page_statistics(views, pages)

    return statistics


def run(spark: SparkSession, bootstrap: str, state: Path, *, once: bool) -> None:
    """Run both stages in parallel until Ctrl-C, or one after the other on the available records if `once`."""
    Topic(VIEWS_BY_PAGE, 4).ensure(Cluster(bootstrap), like=VIEWS)  # the second stage reads it
    stop = Event()
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())

    def stage(number: int, job: Job) -> None:
        options, where, group = OPTIONS if number == 1 else {}, state / str(number), f"stage-{number}"
        job.run(spark, bootstrap, once=once, stop=stop, report=log_progress, group=group, options=options, state=where)

    stages = [(1, first_stage()), (2, second_stage(spark, bootstrap))]
    if once:
        for each in stages:
            stage(*each)
        return
    with ThreadPoolExecutor() as threads:
        for done in as_completed([threads.submit(stage, *each) for each in stages]):
            stop.set()
            done.result()


def log_progress(progress: Progress) -> None:
    logger.info("%s: %d records in %.1f s", progress.job, progress.records, progress.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count page views in two stages.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--state", type=Path, default=Path("stages-state"), help="the directory of the checkpoints")
    parser.add_argument("--once", action="store_true", help="process the available records and exit")
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
