"""`skylog users`: adds, lists and removes SCRAM users, through a broker or in the metadata store."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from skylog.errors import SkylogError
from skylog.terminal import note, print_json, print_table

if TYPE_CHECKING:
    from skylog.cluster import MetadataStore
    from skylog.cluster.scram_users import ScramUsers

PASSWORD_VARIABLE: Final = "SKYLOG_USER_PASSWORD"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Add, list and remove SCRAM users.

    [bold]skylog users add alice[/]
    """,
)


class MechanismName(StrEnum):
    """The mechanisms that `--mechanism` accepts."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Work on the data directory of a broker that does not run.", show_default=False),
]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT[,…][/CHROOT]",
        help="Work on the ZooKeeper of a cluster, also before its first start. How to connect, if it is secured, is "
        "in the file of --config, as settings zookeeper.* of brokers.",
        show_default=False,
    ),
]


@app.command("add")
def add(
    name: Name,
    mechanisms: Annotated[
        list[MechanismName] | None, typer.Option("--mechanism", help="Default: all; can be repeated.")
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", min=4096, max=16384, help="More make a stolen entry harder to guess, and logins slower."
        ),
    ] = 4096,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add a user, or replace the password of one.

    The password is read from the terminal, from standard input, or from SKYLOG_USER_PASSWORD, never from an option:
    other users of the machine could see it.

    [bold]skylog users add alice --data-dir skylog-data[/]
    """
    password = _read_password(name)
    wanted = [each.value for each in mechanisms or list(MechanismName)]
    if data_dir is None and zookeeper is None:
        from skylog.client.user_admin import UserAdmin

        UserAdmin(bootstrap).add(name, password, wanted, iterations)
    else:
        from skylog.cli.stored_metadata import with_store
        from skylog.security.scram import MECHANISMS, Credential

        new = {each: Credential.of_password(MECHANISMS[each], password, iterations).to_value() for each in wanted}

        async def change(store: MetadataStore) -> None:
            await _users(store).change(name, lambda stored: {**stored, **new})

        with_store(data_dir, zookeeper, change)
    note(f"added the user {name}")


@app.command("list")
def list_users(
    json: AsJson = False,
    data_dir: DataDir = None,
    zookeeper: ZooKeeper = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the users and their mechanisms.

    [bold]skylog users list[/]
    """
    if data_dir is None and zookeeper is None:
        from skylog.client.user_admin import UserAdmin

        found = UserAdmin(bootstrap).users()
    else:
        from skylog.cli.stored_metadata import with_store

        async def read(store: MetadataStore) -> dict[str, dict[str, int]]:
            users = _users(store)
            await users.load()
            return {
                name: {mechanism: value["iterations"] for mechanism, value in users.get(name).items()}
                for name in users.names()
            }

        found = with_store(data_dir, zookeeper, read)
    if json:
        print_json([{"user": name, "mechanisms": mechanisms} for name, mechanisms in found.items()])
    elif found:
        print_table(["USER", "MECHANISMS"], [(name, ", ".join(sorted(each))) for name, each in found.items()])
    else:
        note("there are no SCRAM users; skylog users add NAME adds one")


@app.command("remove")
def remove(
    name: Name, data_dir: DataDir = None, zookeeper: ZooKeeper = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Remove a user. Connections that are logged in stay until their session expires.

    [bold]skylog users remove alice[/]
    """
    if data_dir is None and zookeeper is None:
        from skylog.client.user_admin import UserAdmin

        UserAdmin(bootstrap).remove(name)
    else:
        from skylog.cli.stored_metadata import with_store

        async def change(store: MetadataStore) -> None:
            users = _users(store)
            await users.load()
            if not users.get(name):
                raise SkylogError(f"there is no user {name}")
            await users.change(name, lambda _: {})

        with_store(data_dir, zookeeper, change)
    note(f"removed the user {name}")


def _users(store: MetadataStore) -> ScramUsers:
    from skylog.cluster.scram_users import ScramUsers

    return ScramUsers(store)


def _read_password(name: str) -> str:
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        if sys.stdin.isatty():
            password = typer.prompt(f"password of {name}", hide_input=True, confirmation_prompt=True)
        else:
            password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise SkylogError("the password is empty")
    return str(password)
