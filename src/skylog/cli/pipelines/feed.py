"""`skylog pipeline run feed`: delivers posts to the followers of their authors."""

from __future__ import annotations

from typing import Annotated

import typer

from skylog.cli.pipelines.job_options import IntoPartitions, SourceTopics, StreamOptions, with_options
from skylog.cli.pipelines.running import run_job


@with_options
def feed(
    topics: SourceTopics,
    into: Annotated[
        str, typer.Option("--into", metavar="TOPIC", help="The topic of the feeds; created if it does not exist.")
    ] = "feed",
    partitions: IntoPartitions = None,
    *,
    options: StreamOptions,
) -> None:
    """Deliver every post to the followers of its author: a record for each reader, with the reader as key.

    Reads the events user.follow and user.unfollow (attribute author) and post.create (attributes id and title). Spark
    keeps the followers of each author in --state. Each reader gets a post exactly once, even after crashes.

    [bold]skylog pipeline run feed blog_log[/]

    [bold]skylog tail feed --from-beginning[/] shows the result.
    """
    cluster = options.cluster()
    from skylog.pipeline import Topic
    from skylog.pipeline.jobs.feed import feed_job

    run_job(feed_job(topics, Topic(into, partitions)), cluster, options)
