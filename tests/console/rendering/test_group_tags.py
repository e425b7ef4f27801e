"""How groups are marked in lists."""

from __future__ import annotations

from typing import Any, Final

import pytest
from jinja2 import Environment, FileSystemLoader

from skylog.console.app import HERE
from skylog.console.monitoring.pace import GroupProgress, Pace, progress_document
from skylog.console.rendering.formatting import duration

TAGS: Final[Any] = Environment(loader=FileSystemLoader(HERE / "templates")).get_template(
    "group_tags.html", globals={"duration": duration}
)


@pytest.mark.parametrize(
    ("pace", "lag_ms", "left_ms", "tag", "left"),
    [
        ("keeping up", 5000, None, "good", "stays as it is"),
        ("keeping up", 3_600_000, None, "late", "never at this rate"),
        ("falling behind", 5000, None, "late", "never at this rate"),
        ("catching up", 3_600_000, 60_000, "good", "1 min"),
        ("caught up", 0, None, "good", "–"),
        ("stuck", 5000, None, "bad", "never at this rate"),
        ("unknown", None, None, "", "unknown"),
    ],
)
def test_a_group_is_late_if_it_does_not_work_off_a_long_lag(
    pace: Pace, lag_ms: float | None, left_ms: float | None, tag: str, left: str
) -> None:
    group = progress_document(GroupProgress(pace, lag_ms=lag_ms, left_ms=left_ms))
    module = TAGS.module
    assert module.left(group).strip() == left
    assert f'class="tag {tag}"' in module.pace_tag(group)


def test_no_group_is_called_fine_while_the_cluster_does_not_respond() -> None:
    group = progress_document(GroupProgress("caught up", lag_ms=0, left_ms=None))
    shown = TAGS.make_module({"cluster_problem": "the cluster has not answered for 20 s"}).pace_tag(group)
    assert shown.strip() == '<span class="tag">unknown</span>'
