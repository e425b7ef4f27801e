"""`--config FILE` and SKYLOG_CONFIG: how clients reach a cluster, as a properties file with Kafka's names."""

from __future__ import annotations

import os
from typing import Final

# As in client/kafka_settings.py, whose package takes long to import.
CONFIG_VARIABLE: Final = "SKYLOG_CONFIG"


def apply_client_config(arguments: list[str]) -> None:
    """Take `--config FILE` out of the arguments, and let all clients of this process use the file.

    `--config KEY=VALUE` is a setting of a topic, and stays, also without its value: the command reports that. So does
    the `--config` of a broker.
    """
    if arguments[1:2] in (["serve"], ["console"]):
        return
    takes_settings = arguments[1:3] in (["topics", "create"], ["topics", "alter"])
    for at in range(1, len(arguments) - 1):
        path = arguments[at + 1]
        if arguments[at] == "--config" and "=" not in path and not (takes_settings and not os.path.exists(path)):
            del arguments[at : at + 2]
            os.environ[CONFIG_VARIABLE] = path
            break
    path = os.environ.get(CONFIG_VARIABLE, "")
    if path and "SKYLOG_BOOTSTRAP" not in os.environ:
        from skylog.config import read_properties

        try:
            with open(path) as file:
                servers = read_properties(file.read()).get("bootstrap.servers")
        except OSError as error:
            from skylog.terminal import fail

            fail(f"cannot read --config {path}: {error.strerror}")
        if servers:
            os.environ["SKYLOG_BOOTSTRAP"] = servers
