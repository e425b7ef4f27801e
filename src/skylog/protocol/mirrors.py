"""DescribeMirrors (key 20000) and AlterMirrors (key 20001), version 0: the mirrors of a cluster. Only skylog has them.

Their content is JSON: it is read by skylog's own commands and console, and never on a data path.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Message, field, message


@message(api_key=20000, versions="0", flexible="0+")
class DescribeMirrorsRequest(Message):
    """Null requests all mirrors. A broker answers with what it knows: ask all of them for the whole."""

    name: str | None = field("0+", nullable="0+", default=None)


@message(api_key=20000, versions="0", flexible="0+")
class DescribeMirrorsResponse(Message):
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    document: str = field("0+", default="[]")


@message(api_key=20001, versions="0", flexible="0+")
class AlterMirrorsRequest(Message):
    """`action` is create, pause, resume, promote or delete; `document` has what it needs beyond the name."""

    name: str = field("0+")
    action: str = field("0+")
    document: str = field("0+", default="{}")


@message(api_key=20001, versions="0", flexible="0+")
class AlterMirrorsResponse(Message):
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
