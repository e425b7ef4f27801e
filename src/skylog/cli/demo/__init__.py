"""`skylog demo`: everything at once on this machine, from a website's events to the books that balance.

`command` has the options, `story` the order of events. All else is a part of it: `website` and `traffic` make events;
`newsfeed` and `pipeline`, a process that runs `driver`, read them; `figures` and `summary` show it; `settlement` judges
it.
"""

from __future__ import annotations

from skylog.cli.demo.command import demo

__all__ = ["demo"]
