"""The compiled kernel takes the same requests as Python, whatever a client sends; and skylog works without it."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.broker.producer_runs import TakeRun, take_run_in_python
from tests.proof import IS_FULL, proof
from tests.seeds import seed

from .hostile_requests import FORM, OFFSET_AT, batches, differences, key_of, load_kernel, request

ROOT = Path(__file__).parents[2]


def build_hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(target: Path, *options: str) -> None:
    pytest.importorskip("hatchling")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SKYLOG_PURE", raising=False)
        reason = build_hook().compile_kernel(ROOT, target, *options)
    if reason is not None:
        pytest.skip(f"the kernel cannot be compiled here: {reason}")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> TakeRun:
    path = tmp_path_factory.mktemp("kernel") / f"_producer_runs{sysconfig.get_config_var('EXT_SUFFIX')}"
    compile_kernel(path, "-Wall", "-Wextra", "-Werror")
    return load_kernel(path)


@settings(max_examples=proof(20_000, 100))
@given(rng=st.randoms(use_true_random=False))
def test_the_kernel_and_python_take_the_same_requests(kernel: TakeRun, rng: random.Random) -> None:
    ours, theirs = differences(kernel, rng)
    assert ours == theirs


@pytest.mark.parametrize("version", [5, 8, 9, 11])
def test_ordinary_requests_are_taken_together(version: int) -> None:
    rng = random.Random(1)
    found = [batch for batch in (batches(rng) for _ in range(40)) if batch[43] & 0x80]
    data = bytearray(b"".join(request(version, number, batch) for number, batch in enumerate(found[:5])))
    run = take_run_in_python(
        memoryview(data), 0, len(data), version, key_of(version), FORM, OFFSET_AT, 100, 3, 7, 1 << 20
    )
    assert run is not None
    position, parts, length, rows, end_offset, answers = run
    assert (position, length, len(rows)) == (len(data), sum(map(len, found[:5])), 5)
    assert end_offset == 100 + sum(int.from_bytes(batch[57:61]) for batch in found[:5])
    for part, batch, (size, offset, _) in zip(parts, found, rows, strict=False):
        assert bytes(part) == offset.to_bytes(8) + batch[8:12] + (3).to_bytes(4) + batch[16:]
        assert size == len(batch)
    assert len(answers) == 5 * len(FORM)


@pytest.mark.skipif(not IS_FULL, reason="compiles with sanitizers: in the full form")
def test_the_kernel_runs_clean_under_sanitizers(tmp_path: Path) -> None:
    path = tmp_path / "_producer_runs.so"
    compile_kernel(path, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = os.environ | {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-m", "tests.broker.hostile_requests", str(path), str(seed()), "20000"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 1000


@pytest.mark.parametrize(
    ("reason", "variable", "value"), [("SKYLOG_PURE", "SKYLOG_PURE", "1"), ("no C", "CC", "/nowhere")]
)
def test_an_installation_without_a_compiler_goes_on(
    reason: str, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hatchling")
    monkeypatch.delenv("SKYLOG_PURE", raising=False)
    monkeypatch.setenv(variable, value)
    assert reason in build_hook().compile_kernel(ROOT, tmp_path / "kernel.so")


def test_the_version_says_which_form_runs() -> None:
    command = [sys.executable, "-m", "skylog", "--version"]
    done = subprocess.run(command, env=os.environ | {"SKYLOG_PURE": "1"}, capture_output=True, text=True, check=True)
    assert "pure Python" in done.stdout
