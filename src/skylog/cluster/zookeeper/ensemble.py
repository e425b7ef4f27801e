"""The address of a ZooKeeper ensemble: `HOST:PORT[,HOST:PORT…][/chroot]`."""

from __future__ import annotations

from dataclasses import dataclass

from kazoo.hosts import collect_hosts

from skylog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The servers, each as HOST:PORT, and the znode that all paths are relative to. It is empty or begins with '/'."""

    servers: tuple[str, ...]
    chroot: str

    @classmethod
    def parse(cls, text: str) -> Ensemble:
        """Raises ConfigError. The default port is 2181, as in ZooKeeper."""
        addresses, slash, path = text.partition("/")
        chroot = (slash + path).rstrip("/")
        names = chroot.split("/")[1:]
        try:
            if any(name in ("", ".", "..", "zookeeper") for name in names):
                raise ValueError("invalid chroot")
            servers, _ = collect_hosts(addresses)
        except ValueError as error:
            expected = "expected HOST:PORT[,HOST:PORT…][/chroot]"
            raise ConfigError(f"'{text}' is not the address of a ZooKeeper ensemble ({error}): {expected}") from None
        return cls(tuple(_address(host, port) for host, port in servers), chroot)

    def __str__(self) -> str:
        return ",".join(self.servers) + self.chroot


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
