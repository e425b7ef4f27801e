"""`skylog pipeline run monitoring`: raises and clears alerts about the brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skylog.alert import ALERTS_TOPIC
from skylog.cli.pipelines.job_options import StreamOptions, with_options
from skylog.cli.pipelines.running import run_job


@with_options
def monitoring(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of metrics.")] = "_skylog_metrics",
    into: Annotated[
        str,
        typer.Option(
            "--into",
            metavar="TOPIC",
            help="The topic of alerts; created as compacted if it does not exist. The console shows the default one.",
        ),
    ] = ALERTS_TOPIC,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE.toml", help="The rules, instead of the default ones."),
    ] = None,
    *,
    options: StreamOptions,
) -> None:
    """Raise and clear alerts about the brokers, from the metrics that `skylog serve --metrics-topic` publishes.

    An alert is a key of the topic: raised when its condition holds for long enough, cleared when it no longer does. A
    file of rules has tables such as

    \b
    [[rule]]
    name = "consumer falls behind"
    metric = "kafka_consumergroup_lag"
    above = 10000
    for_s = 900

    [bold]skylog pipeline run monitoring[/]

    [bold]skylog pipeline run monitoring --rules rules.toml --every 30s[/]
    """
    cluster = options.cluster()
    from dataclasses import replace

    from skylog.pipeline.jobs.monitoring import RULES, monitoring_job, read_rules
    from skylog.pipeline.jobs.monitoring.job import ALERTS

    known = RULES if rules is None else read_rules(rules)
    run_job(monitoring_job([topic], replace(ALERTS, name=into), known), cluster, options)
