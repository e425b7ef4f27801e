"""An S3-compatible store on this machine, for tests: moto's server, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from skylog.testing import wait_until

VARIABLES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
}


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the address of a store."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(address), "the store", 60)
        yield address
    finally:
        server.kill()
        server.wait()


def make_bucket(address: str) -> str:
    """Create a bucket and return its name."""
    name = f"lake-{uuid.uuid4().hex[:8]}"
    with urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT"), timeout=10):
        return name


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=1):
            return True
    except OSError:
        return False
