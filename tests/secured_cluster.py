"""A broker with TLS, logins and access control, and users with the rights that a test gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from skylog.testing import BrokerProcess
from tests.cli.commands import run_skylog


class SecuredCluster:
    """`broker` has the user admin, who may do everything; `admin` is the file with that login."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.broker, self._folder = broker, folder
        text = (folder / "secrets" / "client.properties").read_text()
        self._text = text.replace("bootstrap.servers=127.0.0.1:9092", f"bootstrap.servers={broker.bootstrap}")
        self.admin = folder / "admin.properties"
        self.admin.write_text(self._text)

    def user(self, name: str, *rules: Sequence[str]) -> Path:
        """Add a user. A rule is what `skylog acls add USER` takes. Return the file with the login."""
        self._run("users", "add", name, stdin=b"secret of a user\n")
        for rule in rules:
            self._run("acls", "add", name, *rule)
        lines = [line for line in self._text.splitlines() if not line.startswith("sasl.jaas.config")]
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        lines.append(f'sasl.jaas.config={module} required username="{name}" password="secret of a user";')
        path = self._folder / f"{name}.properties"
        path.write_text("\n".join(lines))
        return path

    def _run(self, *arguments: str, stdin: bytes = b"") -> None:
        done = run_skylog(*arguments, "--config", self.admin, stdin=stdin)
        assert done.returncode == 0, done.stderr


@contextmanager
def secured_cluster(folder: Path, *options: str) -> Iterator[SecuredCluster]:
    """Run a broker with settings of `skylog secure`. `options` are further ones of `skylog serve`."""
    made = run_skylog("secure", folder / "secrets")
    assert made.returncode == 0, made.stderr
    settings = ["--config", str(folder / "secrets" / "server.properties")]
    with BrokerProcess(options=[*settings, *options]) as broker:
        yield SecuredCluster(broker, folder)
