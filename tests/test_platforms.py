"""What other platforms lack is taken away here: the clients still import, and a broker still stores messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from skylog import Admin, Producer
from skylog.testing import consume

WINDOWS = """
import os, sys
for name in ("fcntl", "resource", "uvloop", "pwd", "grp"):
    sys.modules[name] = None
missing = "register_at_fork fork fdatasync posix_fallocate pwritev sendfile O_CLOEXEC O_DIRECTORY"
for name in missing.split():
    delattr(os, name)
import skylog
for name in skylog.__all__:
    getattr(skylog, name)
import skylog.audit, skylog.events, skylog.events.asgi, skylog.events.wsgi
from skylog.audit import ProducerAudit
producer = skylog.Producer("127.0.0.1:1", audit=ProducerAudit("windows", journal_dir=sys.argv[1]))
events = skylog.events.EventLog(skylog.Producer("127.0.0.1:1"), flush_timeout_s=0.1)
events.fire("a")
events.close()
print("imported", flush=True)
os._exit(0)
"""

MACOS = """
import ctypes, os, pathlib, runpy, socket, sys
sys.modules["uvloop"] = None
for name in ("fdatasync", "posix_fallocate", "pwritev"):
    delattr(os, name)
for name in ("MSG_MORE", "SOCK_NONBLOCK", "SOCK_CLOEXEC"):
    delattr(socket, name)
class Library:
    pass
ctypes.CDLL = lambda name: Library()
exists = pathlib.Path.exists
pathlib.Path.exists = lambda path: not str(path).startswith("/proc") and exists(path)
sys.argv[:] = ["skylog", "serve", "--data-dir", sys.argv[1], "--port", "0", "--no-console"]
runpy.run_module("skylog.cli.main", run_name="__main__")
"""


def test_the_clients_import_and_work_without_what_windows_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WINDOWS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "imported\n", done.stderr
    assert "not delivered within 0.1 s of closing: 1" in done.stderr


def test_a_broker_runs_without_what_macos_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MACOS, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        assert line.startswith("listening on "), broker.stderr.read() if broker.stderr else ""
        bootstrap = line.removeprefix("listening on ").strip()
        Admin(bootstrap).create_topic("letters")
        with Producer(bootstrap) as producer:
            for number in range(2000):
                producer.send("letters", b"%d" % number + bytes(100))
        found = [message.offset for message in consume(bootstrap, "letters", count=2000, timeout_s=60)]
        assert found == list(range(2000))
        broker.terminate()
        _, errors = broker.communicate(timeout=60)
    assert broker.returncode == 0
    assert "Traceback" not in errors, errors
