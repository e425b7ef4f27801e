"""Where a table is: a directory or a prefix of an S3-compatible store. Opens its files, on the driver and in tasks.

The environment variables of AWS are read on the driver and sent to the tasks, so that executors need none of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from skylog.pipeline.delta.errors import TableError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_AWS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ALLOW_HTTP",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
)
# A commit is a put that fails if the version exists. Amazon's and all current S3-compatible stores support this.
_CONDITIONAL_PUT: Final = {"aws_conditional_put": "etag"}


@dataclass(frozen=True)
class Storage:
    """The location of a table. `options` are those of the object store, with its secrets."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Storage:
        """Return the storage of a table. Relative paths start at the working directory. Raises TableError."""
        text = os.fspath(path)
        match = _SCHEME.match(text)
        if match is None:
            if "%" in str(path := Path(text).absolute()):
                raise TableError(f"'{path}': the path of a table must not contain '%', which Delta decodes")
            return cls(str(path))
        if match[1] in ("s3", "s3a"):
            return cls("s3://" + text[match.end() :].strip("/"), _s3_options(os.environ))
        if match[1] == "file":
            raise TableError(f"'{text}' is a URI: use the path alone, such as /{text[len('file:') :].lstrip('/')}")
        raise TableError(f"'{text}': tables are in a directory or in an S3-compatible store (s3://bucket/path)")

    @property
    def is_local(self) -> bool:
        return not self.uri.startswith("s3://")

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.uri.rstrip("/").rpartition("/")[2]

    def sibling(self, suffix: str) -> Storage:
        """Return the location with a suffix added to its name."""
        return Storage(self.uri.rstrip("/") + suffix, self.options)

    def child(self, name: str) -> Storage:
        return Storage(f"{self.uri.rstrip('/')}/{name}", self.options)

    def file_system(self) -> Any:
        """Return a pyarrow file system whose root is the location."""
        from pyarrow import fs

        if self.is_local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))

    def sync(self, *paths: str) -> None:
        """Sync files and their directories to disk. An object store has stored what it has acknowledged.

        A path may be encoded as in Delta's log.
        """
        if self.is_local:
            root = Path(self.uri)
            files = {root / path if (root / path).exists() else root / unquote(path) for path in paths}
            directories = {each for file in files for each in file.parents if each == root or root in each.parents}
            for each in (*files, *directories):
                _sync(each)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _s3_options(environment: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): environment[name] for name in _AWS if environment.get(name)}
    endpoint = options.pop("aws_endpoint_url_s3", options.get("aws_endpoint_url"))
    if endpoint is not None:
        options["aws_endpoint_url"] = endpoint
        if endpoint.startswith("http://"):
            options["aws_allow_http"] = "true"
    return {**_CONDITIONAL_PUT, **options}
