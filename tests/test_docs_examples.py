"""The examples of docs/clients.md are programs, and they work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from skylog import Admin
from skylog.testing import BrokerProcess

ROOT = Path(__file__).parents[1]


def test_the_examples_of_the_clients_page_run_from_top_to_bottom(tmp_path: Path) -> None:
    """All of them in one program, as a reader would type them."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "clients.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 10
    script = tmp_path / "examples.py"
    script.write_text("\n".join(blocks))
    with BrokerProcess(tmp_path / "data", {"group.initial.rebalance.delay.ms": "0"}) as broker:
        done = subprocess.run(
            [sys.executable, str(script)],
            env={"SKYLOG_BOOTSTRAP": broker.bootstrap},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "{1, 2, 3}" in done.stdout
        assert "hello Grace" in done.stdout
        topics = {topic.name for topic in Admin(broker.bootstrap).list_topics() if not topic.is_internal}
        assert topics == {"page_views", "visits", "pickles", "greetings"}
