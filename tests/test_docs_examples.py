"""The examples of docs/clients.md are programs, and they work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from skylog import Admin
from skylog.testing import BrokerProcess

ROOT = Path(__file__).parents[1]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(script: str, directory: Path, bootstrap: str) -> str:
    """Run a program as a reader would; what it printed. It must not complain."""
    path = directory / "example.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={"SKYLOG_BOOTSTRAP": bootstrap},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_examples_of_the_clients_page_run_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = python_blocks("docs/clients.md")
    assert len(blocks) >= 10
    with BrokerProcess() as broker:
        output = run("\n".join(blocks), tmp_path, broker.bootstrap)
        topics = {topic.name for topic in Admin(broker.bootstrap).list_topics() if not topic.is_internal}
    assert "{1, 2, 3}" in output
    assert "hello Grace" in output
    assert topics == {"page_views", "visits", "pickles", "greetings"}


def test_the_examples_of_the_page_on_poison_messages_run_from_top_to_bottom(tmp_path: Path) -> None:
    script = "import logging\nlogging.disable()\n" + "\n".join(python_blocks("docs/poison-messages.md"))
    with BrokerProcess() as broker:
        output = run(script, tmp_path, broker.bootstrap)
    assert output.splitlines()[:3] == ["order 1", "order 2", "2 handled, 1 dead"]
    assert "skylog tail orders --partition 0 --offset 1" in output


def test_the_first_example_of_the_readme_prints_what_it_says(tmp_path: Path, skylog_bootstrap: str) -> None:
    output = run(python_blocks("README.md")[0], tmp_path, skylog_bootstrap)
    assert output.splitlines() == ["['b', 'c', 'd', 'e']", *"abcde"]
