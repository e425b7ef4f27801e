"""The console: a cluster in the browser. Reaches it through `client`, like any user; knows no broker's insides."""

from skylog.console.app import create_app
from skylog.console.settings import Settings

__all__ = ["Settings", "create_app"]
