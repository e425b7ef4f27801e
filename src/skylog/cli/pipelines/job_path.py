"""Finds a job in a user's module by its path, such as `shop.jobs:spam`. Relative to the working directory."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from skylog.errors import ConfigError

if TYPE_CHECKING:
    from skylog.pipeline.job_definition import Job

_PYTHON_PATH = "PYTHONPATH"


def load_job(path: str, start_spark: Callable[[], object] | None = None) -> Job:
    """Import the module and return the job. Raises ConfigError with what is wrong.

    A module may need a Spark session to be imported, for example to declare a function of rows. It is then started with
    `start_spark`. Otherwise mistakes are reported before Spark starts.
    """
    from skylog.pipeline.job_definition import Job

    module_name, _, name = path.partition(":")
    if not module_name or not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"'{path}' is not the path of a job: expected MODULE:NAME, such as shop.jobs:spam")
    module = _import(module_name, start_spark)
    _send_with_tasks(module_name.partition(".")[0])
    found = getattr(module, name, None)
    if isinstance(found, Job):
        return found
    if callable(found):
        raise ConfigError(f"'{name}' in {module_name} is not a job: decorate it with @job from skylog.pipeline")
    jobs = sorted(key for key, value in vars(module).items() if isinstance(value, Job))
    known = f"it has {', '.join(jobs)}" if jobs else "it has no jobs; decorate functions with @job from skylog.pipeline"
    raise ConfigError(f"{module_name} ({module.__file__}) has no job '{name}'; {known}")


def _send_with_tasks(package: str) -> None:
    """Let Spark send the functions of the user's package with the tasks: executors do not have its files."""
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value  # untyped
    register(sys.modules[package])


def _import(name: str, start_spark: Callable[[], object] | None) -> ModuleType:
    from pyspark.errors import PySparkRuntimeError

    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    # Spark's Python workers on this machine import from there too.
    os.environ[_PYTHON_PATH] = os.pathsep.join(filter(None, (directory, os.environ.get(_PYTHON_PATH))))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigError(
                f"there is no module '{missing}' in {directory}; run the command in the directory of the project, or "
                f"set {_PYTHON_PATH}"
            ) from error
        raise ConfigError(f"{name} imports '{missing}', which is not installed: pip install {missing}") from error
    except PySparkRuntimeError as error:
        if start_spark is None or error.getCondition() != "SESSION_OR_CONTEXT_NOT_EXISTS":
            raise _import_error(name, error) from error
        start_spark()
        return _import(name, None)
    except Exception as error:  # whatever the user's code raises
        raise _import_error(name, error) from error


def _import_error(name: str, error: Exception) -> ConfigError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename}, line {last.lineno}"
    return ConfigError(f"cannot import {name}: {type(error).__name__}: {error} ({where})")
