"""Lets Spark discover the format "skylog": it looks for `DefaultSource` in every module named `pyspark_…`."""

from __future__ import annotations

from skylog.spark.source import SkylogSource

DefaultSource = SkylogSource

__all__ = ["DefaultSource"]
