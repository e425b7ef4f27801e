"""`skylog mirror`: copies topics and groups of another cluster into this one, with their offsets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.confirmation import confirm
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes
from skylog.terminal import note, print_heading, print_json, print_table, stdout

if TYPE_CHECKING:
    from skylog.client.mirrors import MirrorAdmin, MirrorDescription

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Mirror topics and groups of another cluster, with the offsets kept.

    [bold]skylog mirror create west --from west:9092 --topics 'clicks,orders.*'[/]
    """,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The mirror.", show_default=False)]


@app.command("create")
def create(
    name: Name,
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT[,…]", help="The cluster to copy from.", show_default=False)
    ],
    topics: Annotated[
        str,
        typer.Option("--topics", metavar="NAMES", help="Topics to copy: names and patterns with *, by comma."),
    ],
    groups: Annotated[
        str, typer.Option("--groups", metavar="NAMES", help="Groups whose offsets to copy, likewise.")
    ] = "",
    prefix: Annotated[str, typer.Option("--prefix", help="Put this before the names of the topics here.")] = "",
    source_config: Annotated[
        Path | None,
        typer.Option(
            "--source-config", metavar="FILE", help="A properties file with TLS and login for the source.", exists=True
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Continue topics that are here already, if the source has all of their records."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Copy topics of another cluster into this one, from now on.

    The brokers of this cluster must reach the source. It may be skylog or Apache Kafka.

    [bold]skylog mirror create west --from west:9092 --topics 'clicks,orders.*' --groups '*' --prefix west.[/]
    """
    from skylog.client.mirrors import source_settings
    from skylog.replication.mirror import split_patterns

    chosen = split_patterns(topics)
    client = source_settings(source_config)
    _admin(bootstrap).create(name, source, chosen, split_patterns(groups), prefix, client, adopt=adopt)
    note(f"created the mirror {name}; skylog mirror describe {name} shows its progress")


@app.command("list")
def list_mirrors(json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the mirrors of this cluster and their lag.

    [bold]skylog mirror list[/]
    """
    found = _admin(bootstrap).list_mirrors()
    if json:
        print_json([_summary(each) for each in found])
    elif found:
        rows = [
            (each.name, each.source, len(each.mirrored), each.status, f"{each.lag:,}", f"{each.lag_s:.1f} s")
            for each in found
        ]
        print_table(
            ["MIRROR", "SOURCE", "TOPICS", "STATUS", "LAG", "BEHIND"], rows, numbers=["TOPICS", "LAG", "BEHIND"]
        )
    else:
        note("this cluster mirrors no other; see skylog mirror create --help")


@app.command("describe")
def describe(name: Name, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the offset, lag and status of each partition, and what cannot be mirrored.

    [bold]skylog mirror describe west[/]
    """
    found = _admin(bootstrap).describe(name)
    if json:
        print_json(_summary(found) | {"partitions": [asdict(each) for each in found.partitions]})
        return
    facts = [found.status, f"from {found.source}", f"topics {','.join(found.topics)}"]
    facts += [f"prefix {found.prefix}"] if found.prefix else []
    facts += [f"{found.groups_copied} groups"] if found.groups else []
    print_heading(found.name, ", ".join(facts))
    rows = [
        (
            each.topic,
            each.partition,
            each.status,
            _or_dash(each.offset),
            _or_dash(each.source_offset),
            _or_dash(each.lag),
            "-" if each.lag_s is None else f"{each.lag_s:.1f} s",
        )
        for each in found.partitions
    ]
    columns = ["TOPIC", "PARTITION", "STATUS", "OFFSET", "SOURCE OFFSET", "LAG", "BEHIND"]
    print_table(columns, rows, numbers=["PARTITION", *columns[3:]])
    stdout.print()
    for text in _troubles(found):
        note(text)


def _troubles(found: MirrorDescription) -> list[str]:
    texts = list(found.errors)
    texts += [f"{topic} of the source is not mirrored: {reason}" for topic, reason in found.problems.items()]
    for each in found.partitions:
        if each.skipped:
            texts.append(
                f"{each.topic}-{each.partition}: the source deleted {each.skipped:,} offsets before they were copied"
            )
        if each.error:
            texts.append(f"{each.topic}-{each.partition}: {each.error}")
    return texts


@app.command("pause")
def pause(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Stop copying. The topics stay as they are, and cannot be written to.

    [bold]skylog mirror pause west[/]
    """
    _admin(bootstrap).pause(name)
    note(f"paused the mirror {name}")


@app.command("resume")
def resume(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Go on copying.

    [bold]skylog mirror resume west[/]
    """
    _admin(bootstrap).resume(name)
    note(f"resumed the mirror {name}")


@app.command("promote")
def promote(
    name: Name,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic of this cluster; can be repeated. Default: all."),
    ] = None,
    yes: Yes = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make mirrored topics writable: ordinary topics, which the mirror does not touch any more. This is for good.

    Transactions that are open at this point are aborted here.

    [bold]skylog mirror promote west --yes[/]
    """
    admin = _admin(bootstrap)
    found = admin.describe(name)
    if not yes:
        names = ", ".join(topics or found.mirrored)
        confirm(f"Promote {names}, which lag by {found.lag:,} messages?", "promoting cannot be undone")
    promoted = admin.promote(name, topics or None)
    if json:
        print_json({"mirror": name, "promoted": promoted})
    note(f"promoted {', '.join(promoted) or 'no topics'}")


@app.command("delete")
def delete(name: Name, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Remove a mirror. Its topics stay and are promoted.

    [bold]skylog mirror delete west --yes[/]
    """
    admin = _admin(bootstrap)
    found = admin.describe(name)
    if not yes:
        promoted = ", ".join(found.mirrored) or "no topics"
        confirm(f"Delete the mirror {name} and promote {promoted}?", "deleting a mirror cannot be undone")
    admin.delete(name)
    note(f"deleted the mirror {name}")


def _summary(found: MirrorDescription) -> dict[str, Any]:
    return {
        "mirror": found.name,
        "source": found.source,
        "status": found.status,
        "topics": list(found.topics),
        "groups": list(found.groups),
        "prefix": found.prefix,
        "paused": found.paused,
        "mirrored": {name: dict(topic) for name, topic in found.mirrored.items()},
        "lag": found.lag,
        "lag_s": found.lag_s,
        "skipped": found.skipped,
        "groups_copied": found.groups_copied,
        "problems": dict(found.problems),
        "errors": list(found.errors),
    }


def _or_dash(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _admin(bootstrap: str) -> MirrorAdmin:
    from skylog.client import Connection
    from skylog.client.mirrors import MirrorAdmin

    return MirrorAdmin(Connection(bootstrap))
