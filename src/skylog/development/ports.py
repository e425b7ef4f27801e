"""The ports of a development cluster. Its directory remembers them, so that the next run uses the same."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from skylog.development.plan import DEFAULT_FIRST_PORT
from skylog.durable_files import replace_file
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
ANY_PORT: Final = 0
_FILE: Final = "cluster.json"


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """The ports of the last run. All are unknown before the first one."""

    zookeeper: int = ANY_PORT
    console: int | None = None
    brokers: tuple[int, ...] = ()

    @classmethod
    def read(cls, data_dir: Path) -> ClusterPorts:
        """Read them from the directory. A damaged file is ignored: it only remembers."""
        path = data_dir / _FILE
        try:
            fields: dict[str, Any] = orjson.loads(path.read_bytes())
            console = fields["console"]
            return cls(
                int(fields["zookeeper"]), None if console is None else int(console), tuple(map(int, fields["brokers"]))
            )
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be read, ports are chosen anew: %s", path, error)
            return cls()

    def write(self, data_dir: Path) -> None:
        """Raises OSError."""
        content = {"zookeeper": self.zookeeper, "console": self.console, "brokers": self.brokers}
        replace_file(data_dir / _FILE, orjson.dumps(content) + b"\n")


def choose_ports(count: int, first: int | None, remembered: Sequence[int]) -> list[int]:
    """Return the ports of the brokers, `ANY_PORT` where any will do.

    Raises SkylogError if a port that was asked for is in use. One of the last run that is in use is replaced.
    """
    if first or (first is None and not remembered):
        first = first or DEFAULT_FIRST_PORT
        ports = list(range(first, first + count))
        for port in ports:
            _check_free(port)
        return ports
    known = [*remembered[:count], *[ANY_PORT] * (count - len(remembered))]
    return [port if is_free(port) else ANY_PORT for port in known]


def is_free(port: int) -> bool:
    try:
        _check_free(port)
    except SkylogError:
        return False
    return True


def _check_free(port: int) -> None:
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
    except OverflowError:
        raise SkylogError(f"there is no port {port}; choose a lower --port") from None
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise SkylogError(
            f"port {port} {reason}; stop the other process, choose another --port, or use --port 0 for free ports"
        ) from error
