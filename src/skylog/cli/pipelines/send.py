"""`skylog pipeline send`: sends the digests of the job `newsletters` by mail. Needs no Spark."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_duration_ms, parse_pairs
from skylog.cli.pipelines.job_options import Once, SourceOptions
from skylog.cli.stop_signals import stopped_by_signals
from skylog.terminal import note, print_json


class Encryption(StrEnum):
    """The values of --tls."""

    NONE = "none"
    STARTTLS = "starttls"
    IMPLICIT = "implicit"


class InDoubt(StrEnum):
    """The values of --in-doubt."""

    RESEND = "resend"
    SKIP = "skip"


def send(
    sender: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="The sender's address.", show_default=False)],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of digests.")] = "newsletters",
    host: Annotated[str, typer.Option("--host", help="The SMTP server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Its port.")] = 25,
    tls: Annotated[Encryption, typer.Option("--tls", help="How the connection is encrypted.")] = Encryption.NONE,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Certificates to trust.", show_default="the system's")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", envvar="SKYLOG_SMTP_USER", help="User name.")] = None,
    password: Annotated[
        str | None,
        typer.Option(
            "--password", envvar="SKYLOG_SMTP_PASSWORD", help="Set it in the environment to hide it from other users."
        ),
    ] = None,
    site: Annotated[
        str, typer.Option("--site", metavar="URL", help="The address before the path of a page, for links.")
    ] = "",
    subject: Annotated[str, typer.Option("--subject", help="The subject; {day} is the day.")] = "The news of {day}",
    in_doubt: Annotated[
        InDoubt,
        typer.Option(
            "--in-doubt",
            help="If a crash or the network hides whether a mail was accepted: send it again with the same "
            "Message-ID, so that none is lost, or skip it, so that none is sent twice.",
        ),
    ] = InDoubt.RESEND,
    max_age: Annotated[
        str, typer.Option("--max-age", metavar="TIME", help="Do not send digests of days that ended earlier.")
    ] = "7d",
    group: Annotated[str, typer.Option("--group", help="The consumer group.")] = "newsletters-sender",
    option: SourceOptions = None,
    once: Once = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send the digests of a topic by mail, each once for a user and a day.

    The topic [bold]TOPIC__sent[/] is the ledger of what was sent. Several senders of one group share the work. The exit
    code is 1 if the server refuses the sender, or has accepted no mail and rejected some.

    [bold]skylog pipeline send --from news@example.org --host mail.example.org --port 587 --tls starttls[/]
    """
    age_days = timedelta(milliseconds=parse_duration_ms(max_age, "--max-age")) / timedelta(days=1)
    options = dict(parse_pairs(option, "--option"))
    from skylog.pipeline.cluster import Cluster
    from skylog.pipeline.jobs.newsletters.mail import Letterhead
    from skylog.pipeline.jobs.newsletters.sender import Doubt, SendSettings, send_newsletters
    from skylog.pipeline.jobs.newsletters.submission import SmtpServer, Tls
    from skylog.pipeline.status_publisher import StatusPublisher

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    server = SmtpServer(host, port, Tls(tls), user, password, None if ca is None else str(ca))
    settings = SendSettings(server, Letterhead(sender, site, subject), Doubt(in_doubt), age_days)
    settings.check()
    cluster, stop = Cluster(bootstrap, options), Event()

    def end() -> None:
        stop.set()
        note("send: stopping after the current mail")

    status = StatusPublisher(cluster, f"send: {topic} -> mail by {host}", "send", [topic])
    with stopped_by_signals(end), status:
        counts = send_newsletters(cluster, topic, settings, group=group, once=once, stop=stop)
    if json:
        print_json(counts)
    else:
        note(f"send: {_in_words(counts)}")
    if counts["rejected"] and not counts["sent"]:
        raise typer.Exit(1)


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()) or "nothing new"
