"""`skylog topics`: creates, lists, describes, changes and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.confirmation import ask, require_terminal
from skylog.cli.denials import seen_with_login
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Configs, Yes, parse_pairs
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.terminal import fail, note, print_json, print_table, stdout
from skylog.units import config_value

if TYPE_CHECKING:
    from skylog.client import Admin, ConfigValue, OffsetRange, Topic
    from skylog.model import TopicPartition

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Create, list, describe, change and delete topics.

    [bold]skylog topics create orders --partitions 4[/]
    """,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="One or more topics.", show_default=False)]


@app.command("create")
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Number of partitions.", show_default="the broker's")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="Number of replicas.", show_default="the broker's"),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic already exists.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic.

    [bold]skylog topics create orders --partitions 4 --config retention.ms=1d[/]
    """
    admin = _admin(bootstrap)
    configs = _parsed(config)
    try:
        admin.create_topic(name, partitions or -1, replication_factor or -1, configs)
    except KafkaError as error:
        if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            raise
        note(f"topic '{name}' already exists and was not changed")
    else:
        note(f"created topic '{name}'")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the topics and their number of messages.

    [bold]skylog topics list[/]
    """
    admin = _admin(bootstrap)
    topics = [topic for topic in admin.list_topics() if internal or not topic.is_internal]
    ranges = admin.offset_ranges([each for topic in topics for each in topic.topic_partitions])
    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "messages": sum(len(ranges[each]) for each in topic.topic_partitions),
        }
        for topic in topics
    ]
    if json:
        print_json(rows)
    elif rows:
        cells = [(row["name"], row["partitions"], f"{row['messages']:,}") for row in rows]
        print_table(["NAME", "PARTITIONS", "MESSAGES"], cells, numbers=["PARTITIONS", "MESSAGES"])
    else:
        note(f"there are no topics{seen_with_login()}; create one with: skylog topics create NAME")


@app.command("describe")
def describe(
    names: Names,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show all settings, not only those that were changed.")
    ] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the partitions of topics with their leaders and offsets, and their settings.

    [bold]skylog topics describe orders --all-configs[/]
    """
    admin = _admin(bootstrap)
    documents = []
    for topic in admin.describe_topics(names):
        ranges = admin.offset_ranges(topic.topic_partitions)
        configs = [each for each in admin.describe_configs(topic.name) if all_configs or _is_shown(each)]
        if json:
            documents.append(_description(topic, ranges, configs))
        else:
            _print_description(topic, ranges, configs)
    if json:
        print_json(documents)


def _is_shown(config: ConfigValue) -> bool:
    """Whether a setting was changed, or says that the topic is a mirror."""
    from skylog.replication.mirror import MIRROR_KEY

    return not config.is_default or config.name == MIRROR_KEY


def _parsed(config: list[str] | None) -> dict[str, str]:
    """Return settings without their units: `3d` and `1GiB` are numbers of milliseconds and of bytes."""
    return {key: config_value(key, value) for key, value in parse_pairs(config, "--config")}


def _description(topic: Topic, ranges: dict[TopicPartition, OffsetRange], configs: list[ConfigValue]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "replication_factor": topic.replication_factor,
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "in_sync_replicas": partition.in_sync_replicas,
                "start_offset": ranges[key].start_offset,
                "end_offset": ranges[key].end_offset,
            }
            for key, partition in zip(topic.topic_partitions, topic.partitions, strict=True)
        ],
        "configs": {each.name: {"value": each.value, "source": each.source} for each in configs},
    }


def _print_description(topic: Topic, ranges: dict[TopicPartition, OffsetRange], configs: list[ConfigValue]) -> None:
    stdout.print(f"[bold]{topic.name}[/]")
    rows = [
        (
            partition.index,
            partition.leader,
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.in_sync_replicas)),
            ranges[key].start_offset,
            ranges[key].end_offset,
        )
        for key, partition in zip(topic.topic_partitions, topic.partitions, strict=True)
    ]
    columns = ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START OFFSET", "END OFFSET"]
    print_table(columns, rows, numbers=["PARTITION", "LEADER", "START OFFSET", "END OFFSET"])
    if configs:
        print_table(["CONFIG", "VALUE", "FROM"], [(each.name, each.value or "", each.source) for each in configs])
    stdout.print()


@app.command("alter")
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="New number of partitions; it can only grow.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="A setting to reset to its default."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change a topic's settings, or add partitions.

    [bold]skylog topics alter orders --config retention.ms=1h --delete-config segment.bytes[/]
    """
    changes: dict[str, str | None] = {**_parsed(config)}
    for key in delete_config or ():
        if key in changes:
            raise typer.BadParameter(f"'{key}' is also set with --config", param_hint="--delete-config")
        changes[key] = None
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --delete-config")
    admin = _admin(bootstrap)
    if changes:
        admin.alter_configs(name, changes)
    if partitions is not None:
        try:
            admin.add_partitions(name, partitions)
        except SkylogError as error:
            fail(f"{error} (the settings have been changed)" if changes else str(error))
    note(f"changed topic '{name}'")


@app.command("delete")
def delete(
    names: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and all their messages.

    [bold]skylog topics delete orders payments --yes[/]
    """
    admin = _admin(bootstrap)
    unique = list(dict.fromkeys(names))
    topics = admin.describe_topics(unique)
    if not yes:
        require_terminal("deleting topics cannot be undone")
        ranges = admin.offset_ranges([each for topic in topics for each in topic.topic_partitions])
        count = sum(len(each) for each in ranges.values())
        ask(f"Delete {', '.join(unique)} with {count:,} messages?", "nothing was deleted")
    admin.delete_topics(unique)
    note(f"deleted {', '.join(unique)}")


def _admin(bootstrap: str) -> Admin:
    from skylog.client import Admin, Connection

    return Admin(Connection(bootstrap))
