"""`skylog quotas`: sets, lists and removes client quotas, through a broker or in the metadata store."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from skylog.cli.users import DataDir, ZooKeeper
from skylog.errors import SkylogError
from skylog.quotas import Entity, QuotaKey, apply_changes, check_entity, describe_entity
from skylog.terminal import note, print_json, print_table
from skylog.units import byte_count

if TYPE_CHECKING:
    from skylog.cluster import MetadataStore
    from skylog.cluster.client_quotas import AllQuotas

Changes = dict[QuotaKey, float | None]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Set, list and remove quotas: how much clients may send, read and change.

    A client that is above its quota is not refused, but slowed down. Every broker limits a client by itself.

    [bold]skylog quotas set --user alice --producer-byte-rate 1MiB[/]
    """,
)


class EntityType(StrEnum):
    """The types that `--default` accepts."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


User = Annotated[str | None, typer.Option("--user", help="A user, as it logs in.", show_default=False)]
ClientId = Annotated[
    str | None, typer.Option("--client-id", help="A client id; with --user, of that user.", show_default=False)
]
Ip = Annotated[str | None, typer.Option("--ip", help="An IP address.", show_default=False)]
Default = Annotated[
    list[EntityType] | None,
    typer.Option(
        "--default",
        help="Each user, client-id or ip that has no quota of its own; can be repeated.",
        show_default=False,
    ),
]
_KEYS: Final = ", ".join(key.replace("_", "-") for key in QuotaKey)


@app.command("set")
def set_quotas(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    producer_byte_rate: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Bytes per second to produce, such as 1MiB.")
    ] = None,
    consumer_byte_rate: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Bytes per second to fetch, such as 500kB.")
    ] = None,
    request_percentage: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Share of a broker's time; 100 is all of it.")
    ] = None,
    controller_mutation_rate: Annotated[
        float | None, typer.Option(metavar="COUNT", help="Partitions per second to create or delete.")
    ] = None,
    connection_creation_rate: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Connections per second, of an IP address.")
    ] = None,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set quotas. Those that are not given stay as they are.

    [bold]skylog quotas set --user alice --producer-byte-rate 1MiB[/]

    [bold]skylog quotas set --default client-id --consumer-byte-rate 10MiB[/]

    [bold]skylog quotas set --user alice --client-id reports --request-percentage 20[/]
    """
    entity = _entity(user, client_id, ip, default)
    given = {
        QuotaKey.PRODUCER_BYTE_RATE: _bytes("--producer-byte-rate", producer_byte_rate),
        QuotaKey.CONSUMER_BYTE_RATE: _bytes("--consumer-byte-rate", consumer_byte_rate),
        QuotaKey.REQUEST_PERCENTAGE: request_percentage,
        QuotaKey.CONTROLLER_MUTATION_RATE: controller_mutation_rate,
        QuotaKey.CONNECTION_CREATION_RATE: connection_creation_rate,
    }
    changes: Changes = {key: float(value) for key, value in given.items() if value is not None}
    if not changes:
        raise SkylogError("give a quota to set, such as --producer-byte-rate 1MiB; see skylog quotas set --help")
    apply_changes(entity, {}, list(changes.items()))
    _change(entity, changes, data_dir, zookeeper, bootstrap)
    for key, value in changes.items():
        note(f"set for {describe_entity(entity)}: {key}={value:.15g}")


@app.command("list")
def list_quotas(
    json: AsJson = False,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the quotas.

    [bold]skylog quotas list[/]
    """
    found = sorted(_all(data_dir, zookeeper, bootstrap).items(), key=str)
    if json:
        print_json([{"entity": dict(entity), "quotas": dict(quotas)} for entity, quotas in found])
    elif found:
        rows = [
            (*(_shown(entity, kind) for kind in EntityType), key, f"{value:.15g}")
            for entity, quotas in found
            for key, value in sorted(quotas.items())
        ]
        print_table(["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"], rows, numbers=["VALUE"])
    else:
        note("there are no quotas; skylog quotas set --user NAME --producer-byte-rate 1MiB sets one")


@app.command("remove")
def remove(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA…]", help=f"Of {_KEYS}; default: all of them.")
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove quotas of a user, a client id or an address.

    [bold]skylog quotas remove producer-byte-rate --user alice[/]
    """
    entity = _entity(user, client_id, ip, default)
    quotas = _all(data_dir, zookeeper, bootstrap).get(entity, {})
    wanted = [_key(name) for name in keys] if keys else list(quotas)
    missing = [key for key in wanted if key not in quotas]
    if missing or not wanted:
        what = missing[0] if missing else "quota"
        raise SkylogError(f"there is no {what} for {describe_entity(entity)}; skylog quotas list shows all")
    _change(entity, dict.fromkeys(wanted), data_dir, zookeeper, bootstrap)
    for key in wanted:
        note(f"removed for {describe_entity(entity)}: {key}")


def _entity(user: str | None, client_id: str | None, ip: str | None, default: list[EntityType] | None) -> Entity:
    """Return whose quotas are meant. Raises SkylogError."""
    given = {EntityType.USER: user, EntityType.CLIENT_ID: client_id, EntityType.IP: ip}
    parts: list[tuple[str, str | None]] = [(kind, name) for kind, name in given.items() if name is not None]
    parts += [(kind, None) for kind in default or []]
    if not parts:
        raise SkylogError("say whose quota: --user NAME, --client-id ID, --ip ADDRESS, or --default user")
    return check_entity(parts)


def _bytes(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    number = byte_count(text)
    if number is None:
        raise SkylogError(f"{option} {text}: expected bytes per second, such as 1000000, 500kB or 1MiB")
    return number


def _key(name: str) -> QuotaKey:
    try:
        return QuotaKey(name.replace("-", "_"))
    except ValueError:
        raise SkylogError(f"there is no quota '{name}'; there are {_KEYS}") from None


def _shown(entity: Entity, kind: str) -> str:
    names = dict(entity)
    return (names[kind] or "(default)") if kind in names else ""


def _all(data_dir: DataDir, zookeeper: ZooKeeper, bootstrap: str) -> dict[Entity, dict[QuotaKey, float]]:
    if data_dir is None and zookeeper is None:
        from skylog.client.quota_admin import QuotaAdmin

        return QuotaAdmin(bootstrap).quotas()
    from skylog.cli.stored_metadata import with_store
    from skylog.cluster.client_quotas import StoredQuotas

    async def read(store: MetadataStore) -> AllQuotas:
        return await StoredQuotas(store).load()

    found = with_store(data_dir, zookeeper, read)
    return {entity: {QuotaKey(name): value for name, value in quotas.items()} for entity, quotas in found.items()}


def _change(entity: Entity, changes: Changes, data_dir: DataDir, zookeeper: ZooKeeper, bootstrap: str) -> None:
    if data_dir is None and zookeeper is None:
        from skylog.client.quota_admin import QuotaAdmin

        QuotaAdmin(bootstrap).change(entity, changes)
        return
    from skylog.cli.stored_metadata import with_store
    from skylog.cluster.client_quotas import StoredQuotas

    def decide(stored: AllQuotas) -> AllQuotas:
        before = {QuotaKey(name): value for name, value in stored.get(entity, {}).items()}
        after = apply_changes(entity, before, list(changes.items()))
        return {entity: {str(key): value for key, value in after.items()}}

    async def change(store: MetadataStore) -> None:
        await StoredQuotas(store).change(decide)

    with_store(data_dir, zookeeper, change)
