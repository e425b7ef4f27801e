"""`skylog pipeline run spam`: flags comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.options import parse_duration_ms
from skylog.cli.pipelines.job_options import IntoPartitions, SourceTopics, StreamOptions, with_options
from skylog.cli.pipelines.running import run_job
from skylog.errors import ConfigError


@with_options
def spam(
    topics: SourceTopics,
    into: Annotated[
        str,
        typer.Option("--into", metavar="TOPIC", help="The topic of flagged comments; created if it does not exist."),
    ] = "flagged",
    partitions: IntoPartitions = None,
    phrases: Annotated[
        Path | None,
        typer.Option("--phrases", metavar="FILE", help="Known phrases, one per line.", show_default="a few in English"),
    ] = None,
    links: Annotated[int, typer.Option("--links", min=0, help="The number of links that a comment may have.")] = 2,
    comments: Annotated[
        int, typer.Option("--comments", min=1, help="The number of comments that a user may write in the window.")
    ] = 5,
    window: Annotated[
        str, typer.Option("--window", metavar="TIME", help="The time in which a user's comments are counted.")
    ] = "1m",
    *,
    options: StreamOptions,
) -> None:
    """Flag comments with known phrases or many links, and those of users who write too often or the same again.

    Reads the events comment.create (attributes id and body). A flagged comment is written once, with its id as key and
    its reasons: phrase, links, burst, repeat. Spark keeps each user's last comments in --state.

    [bold]skylog pipeline run spam blog_log --phrases phrases.txt --comments 3 --window 30s[/]

    [bold]skylog tail flagged --from-beginning[/] shows the result.
    """
    window_s = parse_duration_ms(window, "--window") / 1000
    cluster = options.cluster()
    from skylog.pipeline import Topic
    from skylog.pipeline.jobs.spam import PHRASES, SpamRules, spam_job

    known = PHRASES if phrases is None else _read_phrases(phrases)
    rules = SpamRules(known, links, comments, window_s)
    run_job(spam_job(topics, Topic(into, partitions), rules), cluster, options)


def _read_phrases(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read --phrases {path}: {error}") from error
