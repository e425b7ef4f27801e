"""What jobs on the command line have in common: Spark starts and stops with them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason="jobs run on Spark: pip install -e '.[spark]'")

from skylog.cli.pipelines.job_options import RunOptions
from skylog.cli.pipelines.running import running
from skylog.pipeline.runner import JobError
from skylog.spark import session


def test_the_error_of_a_job_is_that_of_the_job_if_spark_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = MagicMock()
    spark.stop.side_effect = ConnectionRefusedError
    monkeypatch.setattr(session, "start_session", lambda *_: spark)
    job: Any = MagicMock()
    job.status.return_value = nullcontext(MagicMock())
    with pytest.raises(JobError, match="has ended"), running(job, MagicMock(), RunOptions(once=True)):
        raise JobError("copy: Spark's Java process has ended")
