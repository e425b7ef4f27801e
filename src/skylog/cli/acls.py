"""`skylog acls`: adds, lists, removes and checks access control lists, through a broker or in the metadata store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from skylog.cli.users import DataDir, ZooKeeper
from skylog.errors import SkylogError
from skylog.security.acl import (
    ANY_HOST,
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
    parse_kind,
)
from skylog.terminal import note, print_json, print_table

if TYPE_CHECKING:
    from skylog.cluster import MetadataStore
    from skylog.cluster.acls import AllRules
    from skylog.security.authorizer import Authorizer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Add, list, remove and check access control lists.

    [bold]skylog acls add alice read write --topic clicks[/]
    """,
)

User = Annotated[
    str, typer.Argument(metavar="USER", help="A user, * for everybody, or a principal User:NAME.", show_default=False)
]
AnyUser = Annotated[str | None, typer.Argument(metavar="[USER]", help="Only the rules of this user.")]
Operations = Annotated[
    list[str],
    typer.Argument(
        metavar="OPERATION…",
        help="read, write, create, delete, alter, describe, describe-configs, alter-configs, cluster-action, "
        "idempotent-write or all.",
        show_default=False,
    ),
]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="Such as read or write.", show_default=False)]
Topic = Annotated[str | None, typer.Option("--topic", help="A topic; * for all.", show_default=False)]
Group = Annotated[str | None, typer.Option("--group", help="A consumer group; * for all.", show_default=False)]
TransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", help="A transactional id; * for all.", show_default=False)
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="All names that begin with the given one.")]
Host = Annotated[str, typer.Option("--host", help="Only from this address.")]


@app.command("add")
def add(
    user: User,
    operations: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    deny: Annotated[bool, typer.Option("--deny", help="Deny it, whatever other rules allow.")] = False,
    host: Host = ANY_HOST,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Allow a user to do something, or deny it.

    [bold]skylog acls add alice read --topic web- --prefix[/]
    """
    resource = _resource(topic, group, transactional_id, cluster, prefix)
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [Acl(resource, _principal(user), host, parse_kind(AclOperation, each), permission) for each in operations]
    for acl in acls:
        acl.check()
    if data_dir is None and zookeeper is None:
        from skylog.client.acl_admin import AclAdmin

        AclAdmin(bootstrap).add(acls)
    else:
        from skylog.broker.security.stored_rules import with_acls
        from skylog.cli.stored_metadata import with_store
        from skylog.cluster.acls import StoredAcls

        async def change(store: MetadataStore) -> None:
            await StoredAcls(store).change(lambda before: with_acls(before, acls))

        with_store(data_dir, zookeeper, change)
    for acl in acls:
        note(f"added: {acl}")


@app.command("list")
def list_acls(
    user: AnyUser = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    json: AsJson = False,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the rules, or those that apply to a user, a topic, a group.

    [bold]skylog acls list --topic clicks[/]
    """
    wanted = AclFilter(principal=_principal(user) if user is not None else None)
    if cluster or any(each is not None for each in (topic, group, transactional_id)):
        kind, _, name = _resource(topic, group, transactional_id, cluster, False)
        wanted = wanted._replace(type=kind, pattern=PatternType.MATCH, name=name)
    if data_dir is None and zookeeper is None:
        from skylog.client.acl_admin import AclAdmin

        found = AclAdmin(bootstrap).find(wanted)
    else:
        found = [acl for acl in _stored(data_dir, zookeeper).acls() if wanted.matches(acl)]
    if json:
        print_json([_document(acl) for acl in found])
    elif found:
        rows = [
            (
                acl.principal,
                acl.permission.name.lower(),
                acl.operation.name.lower(),
                acl.resource.type.name.lower(),
                acl.resource.name + ("…" if acl.resource.pattern is PatternType.PREFIXED else ""),
                acl.host,
            )
            for acl in sorted(found)
        ]
        print_table(["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "HOST"], rows)
    else:
        note("there are no such rules; skylog acls add USER OPERATION --topic TOPIC adds one")


@app.command("remove")
def remove(
    user: User,
    operations: Annotated[list[str] | None, typer.Argument(metavar="[OPERATION…]", help="Default: all.")] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the rules of a user for a resource.

    [bold]skylog acls remove alice write --topic clicks[/]
    """
    resource = _resource(topic, group, transactional_id, cluster, prefix)
    wanted = [parse_kind(AclOperation, each) for each in operations or ["any"]]
    filters = [AclFilter(*resource, _principal(user), operation=each) for each in wanted]
    if data_dir is None and zookeeper is None:
        from skylog.client.acl_admin import AclAdmin

        admin = AclAdmin(bootstrap)
        removed = [acl for each in filters for acl in admin.remove(each)]
    else:
        removed = _remove_stored(filters, data_dir, zookeeper)
    if not removed:
        raise SkylogError("there is no such rule; skylog acls list shows them")
    for acl in removed:
        note(f"removed: {acl}")


@app.command("check")
def check(
    user: User,
    operation: Operation,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    host: Annotated[str, typer.Option("--host", help="The address that the user comes from.")] = "127.0.0.1",
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Say whether a user may do something, and by which rule. The exit status is 1 if not.

    [bold]skylog acls check alice write --topic clicks[/]
    """
    kind, _, name = _resource(topic, group, transactional_id, cluster, False)
    wanted = parse_kind(AclOperation, operation)
    if wanted not in OPERATIONS[kind]:
        raise SkylogError(f"a {kind.name.lower()} has no operation {wanted.name.lower()}")
    if data_dir is None and zookeeper is None:
        from skylog.client.acl_admin import AclAdmin

        authorizer = AclAdmin(bootstrap).authorizer()
    else:
        authorizer = _stored(data_dir, zookeeper)  # super users are not stored, but a setting of brokers
    decision = authorizer.decide(_principal(user), host, wanted, kind, name)
    why = f"by this rule: {decision.acl}" if decision.acl is not None else decision.reason
    if decision.acl is None and not (data_dir is None and zookeeper is None):
        why += " (super users are a setting of brokers, which is not considered here)"
    typer.echo(f"{'yes' if decision.is_allowed else 'no'}, {why}")
    if not decision.is_allowed:
        raise typer.Exit(1)


def _principal(user: str) -> str:
    return user if user.startswith("User:") else f"User:{user}"


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool, prefix: bool
) -> Resource:
    given = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    found = [(kind, name) for kind, name in given.items() if name is not None]
    if len(found) != 1:
        raise SkylogError("give one of --topic, --group, --transactional-id and --cluster")
    ((kind, name),) = found
    return Resource(kind, PatternType.PREFIXED if prefix else PatternType.LITERAL, name)


def _stored(data_dir: DataDir, zookeeper: ZooKeeper) -> Authorizer:
    """Return the rules in a metadata store."""
    from skylog.broker.security.stored_rules import acls_of, resource_of
    from skylog.cli.stored_metadata import with_store
    from skylog.cluster.acls import StoredAcls
    from skylog.security.authorizer import Authorizer

    async def read(store: MetadataStore) -> AllRules:
        return await StoredAcls(store).load()

    authorizer = Authorizer()
    for stored, rules in with_store(data_dir, zookeeper, read).items():
        authorizer.put(resource_of(stored), acls_of(stored, rules))
    return authorizer


def _remove_stored(filters: list[AclFilter], data_dir: DataDir, zookeeper: ZooKeeper) -> list[Acl]:
    from skylog.broker.security.stored_rules import without_acls
    from skylog.cli.stored_metadata import with_store
    from skylog.cluster.acls import StoredAcls

    removed: list[Acl] = []

    def decide(before: AllRules) -> AllRules:
        after, removed[:] = without_acls(before, filters)
        return after

    async def change(store: MetadataStore) -> None:
        await StoredAcls(store).change(decide)

    with_store(data_dir, zookeeper, change)
    return removed


def _document(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": acl.operation.name.lower(),
        "resource": acl.resource.type.name.lower(),
        "name": acl.resource.name,
        "pattern": acl.resource.pattern.name.lower(),
        "host": acl.host,
    }
