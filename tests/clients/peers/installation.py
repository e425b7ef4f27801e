"""Getting clients from outside Python onto the machine, once, for all test processes.

Everything lands in a cache folder under a stamp that names what was asked for; a file lock keeps parallel test
processes from installing side by side. What cannot be had is reported with the installer's own words.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("SKYLOG_PEERS_CACHE", Path.home() / ".cache" / "skylog-peers"))
JAVA_VERSIONS = ("3.9.2", "4.3.0")
_INSTALL_TIMEOUT_S = 240


class NotAvailable(Exception):  # noqa: N818 - a state of the machine, not a fault
    """A client cannot be installed here; the message says why."""


def _on_one_line(output: str) -> str:
    """The beginning of what an installer said, where the cause stands."""
    return " | ".join(line.strip() for line in output.strip().splitlines()[:4])


def install(command: Sequence[str], cwd: Path) -> None:
    """Run an installer quietly."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise NotAvailable(f"{command[0]}: {failure}") from failure
    if done.returncode:
        raise NotAvailable(f"{command[0]} failed: {_on_one_line(done.stdout)}")


@contextmanager
def _lock(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _folder(name: str, recipe: Sequence[Path]) -> Path:
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in recipe)).hexdigest()[:12]
    return CACHE / f"{name}-{digest}"


def installed(name: str, recipe: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The folder `build` fills according to the files of `recipe`; built again when one of them changes."""
    folder = _folder(name, recipe)
    stamp = folder / ".complete"
    with _lock(name):
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            build(folder)
            stamp.touch()
    return folder


def node_modules(project: Path, name: str) -> Path:
    """The node_modules for a folder with a package.json."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotAvailable("node and npm are not installed")

    def build(folder: Path) -> None:
        shutil.copy(project / "package.json", folder)
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        # Without a network npm would otherwise try for a minute.
        quick = [
            "--prefer-offline",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=500",
            "--fetch-retry-maxtimeout=500",
        ]
        install(["npm", "install", *quiet, *quick], folder)

    return installed(name, [project / "package.json"], build) / "node_modules"


def python_packages(recipe: Path, name: str) -> Path:
    """The folder of Python packages that a file of requirements names, apart from those that the tests use."""

    def build(folder: Path) -> None:
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:"]
        where = ["--target", str(folder), "--requirement", str(recipe)]
        install([sys.executable, "-m", "pip", "install", *quiet, *where], folder)

    return installed(name, [recipe], build)


def java_classpath(project: Path, artifact: str, version: str) -> str:
    """The classpath of a compiled project with one version of a jar of Apache Kafka."""
    if any(shutil.which(tool) is None for tool in ("java", "javac", "mvn")):
        raise NotAvailable("a JDK and mvn are not installed")
    recipe, sources = project / "pom.xml", sorted(project.glob("*.java"))

    def download(folder: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", f"-Dkafka.version={version}"]
        install(["mvn", "-q", "-B", "-f", str(recipe), *goal], folder)

    def compile_sources(folder: Path) -> None:
        # Not an installation: a project that does not compile is a failure, not a reason to skip.
        subprocess.run(["javac", "-cp", f"{libraries}/*", "-d", str(folder), *map(str, sources)], check=True)

    libraries = installed(f"{artifact}-{version}", [recipe], download)
    classes = installed(f"{artifact}-classes-{version}", [recipe, *sources], compile_sources)
    return f"{classes}:{libraries}/*"


def go_program(project: Path, name: str, *, may_build: bool) -> Path:
    """The program that a folder with a go.mod holds, with the modules it names. The first build takes a while."""
    if shutil.which("go") is None:
        raise NotAvailable("go is not installed")
    recipe = [project / "go.mod", project / "go.sum", *sorted(project.glob("*.go"))]
    if not may_build and not (_folder(name, recipe) / ".complete").exists():
        raise NotAvailable("it is not built yet; `make proof` builds it")

    def build(folder: Path) -> None:
        install(["go", "mod", "download"], project)
        # Not an installation: a project that does not compile is a failure, not a reason to skip.
        environment = {**os.environ, "GOFLAGS": "-buildvcs=false -mod=readonly"}
        subprocess.run(["go", "build", "-o", str(folder / name), "."], cwd=project, env=environment, check=True)

    return installed(name, recipe, build) / name


def debian_program(name: str) -> str:
    """A program from the path, or from Debian's package of its name where this process may install packages."""
    with _lock("debian"):
        if shutil.which(name) is None:
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise NotAvailable(f"{name} is not installed and this user cannot install it with apt-get")
            command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", name]
            try:
                install(command, Path("/"))
            except NotAvailable:
                install(["apt-get", "update", "-qq"], Path("/"))
                install(command, Path("/"))
    return name
