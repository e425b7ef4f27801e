"""The `skylog` command: finds the subcommands.

Typer and what it imports take a quarter of a broker's start and 11 MB. `skylog serve` does without them if its
arguments are plain (`serve.plain_arguments`), and every command imports only itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from skylog.cli.client_config import apply_client_config
from skylog.errors import SkylogError

if TYPE_CHECKING:
    from typer import Typer

    from skylog.cli.serve.options import ServeOptions

COMMANDS: Final = {
    "serve": "skylog.cli.serve.command:serve",
    "console": "skylog.cli.console:console",
    "registry": "skylog.cli.registry:registry",
    "schemas": "skylog.cli.schemas:app",
    "zookeeper": "skylog.cli.zookeeper:zookeeper",
    "cluster": "skylog.cli.cluster:app",
    "topics": "skylog.cli.topics:app",
    "produce": "skylog.cli.produce:produce",
    "tail": "skylog.cli.tail:tail",
    "replay": "skylog.cli.replay:replay",
    "groups": "skylog.cli.groups:app",
    "mirror": "skylog.cli.mirror:app",
    "capture": "skylog.cli.capture:app",
    "transactions": "skylog.cli.transactions:app",
    "users": "skylog.cli.users:app",
    "acls": "skylog.cli.acls:app",
    "quotas": "skylog.cli.quotas:app",
    "secure": "skylog.cli.secure:secure",
    "audit": "skylog.cli.audit:app",
    "log": "skylog.cli.log:app",
    "pipeline": "skylog.cli.pipelines:app",
    "search": "skylog.cli.search:search",
    "demo": "skylog.cli.demo:demo",
}
"""Where each command is: a function, or an app with subcommands. In the order of `skylog --help`."""


def command_line(names: Iterable[str] = COMMANDS) -> Typer:
    """Return the app with these commands. Others are not imported."""
    from skylog.cli.app import build_app

    return build_app({name: COMMANDS[name] for name in names})


def run() -> None:
    """Run the console script. Prints a SkylogError as one line on stderr, without a traceback."""
    if sys.stdout is not None and sys.stdout.encoding.lower() != "utf-8":
        from skylog.terminal import escape_unencodable

        escape_unencodable()
    apply_client_config(sys.argv)
    called = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        options = _broker_options(sys.argv[2:]) if called == ["serve"] else None
        if options is not None:
            _run_broker(options)
        else:
            command_line(called or COMMANDS)()
    except SkylogError as error:
        from skylog.cli.denials import with_fix
        from skylog.terminal import fail

        fail(with_fix(error))
    except UnicodeEncodeError:
        unreadable = [argument for argument in sys.argv[1:] if any("\ud800" <= each <= "\udfff" for each in argument)]
        if not unreadable:
            raise
        from skylog.terminal import fail

        fail(f"the argument '{unreadable[0]}' is not valid UTF-8")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has closed the pipe: exit silently
        sys.exit(141)
    except KeyboardInterrupt:  # while a broker starts; typer does the same for other commands
        sys.exit(130)


def _broker_options(arguments: list[str]) -> ServeOptions | None:
    from skylog.cli.serve.plain_arguments import read_plain_arguments

    return read_plain_arguments(arguments, os.environ)


def _run_broker(options: ServeOptions) -> None:
    from skylog.cli.serve.broker_server import run_broker

    run_broker(options)


if __name__ == "__main__":
    run()
