"""`skylog search`: queries the full-text index of the job `search`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.options import AsJson
from skylog.printable import escape_controls
from skylog.search_index import DEFAULT_INDEX, INDEX_VARIABLE, MAX_HITS, Answer, Hit
from skylog.search_index import search as find
from skylog.terminal import note, print_json, stdout


def search(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS…",
            help='All of them must occur. "two words" is a phrase, word* a prefix, and -word (after --) excludes.',
            show_default=False,
        ),
    ],
    index: Annotated[
        Path, typer.Option("--index", metavar="PATH", envvar=INDEX_VARIABLE, help="The index.")
    ] = DEFAULT_INDEX,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_HITS, help="Maximum number of documents.")] = 10,
    json: AsJson = False,
) -> None:
    """Search the documents that [bold]skylog pipeline run search[/] has indexed, best first.

    [bold]skylog search comet harbour[/]

    [bold]skylog search '"over the harbour"' --limit 3 --json[/]
    """
    answer = find(index, " ".join(words), limit)
    if json:
        print_json({"total": answer.total, "hits": [hit.document() for hit in answer.hits]})
    else:
        print_answer(answer)


def print_answer(answer: Answer) -> None:
    """Print the hits, with the matching words in bold."""
    for hit in answer.hits:
        stdout.print(_text(hit))
    shown = len(answer.hits)
    note(
        f"{answer.total:,} {'document' if answer.total == 1 else 'documents'}"
        + f", the best {shown}" * (shown < answer.total)
    )


def _text(hit: Hit) -> object:
    from rich.text import Text

    parts = [(_plain(text), "bold yellow" if is_match else "") for text, is_match in hit.parts]
    return Text.assemble((_plain(hit.title or hit.id), "bold"), f"  {_plain(hit.id)}  {hit.score:.2f}\n    ", *parts)


def _plain(text: str) -> str:
    return escape_controls(re.sub(r"\s+", " ", text))
