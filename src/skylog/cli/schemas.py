"""`skylog schemas`: lists, shows, checks and registers schemas in a registry."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.options import AsJson, parse_pairs
from skylog.errors import SkylogError
from skylog.schemas import Reference, SchemaType
from skylog.schemas.registry_client import RegisteredSchema, RegistryClient, SchemaText
from skylog.schemas.registry_http import CREDENTIALS_SOURCE, SASL_INHERIT, URL, USER_INFO, USER_INFO_SOURCE
from skylog.terminal import note, print_heading, print_json, print_table, write

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""List, show, check and register schemas, in any registry with Confluent's API.

    [bold]skylog schemas check orders-value order.avsc[/]
    """,
)

KINDS: Final = {".avsc": SchemaType.AVRO, ".json": SchemaType.JSON, ".proto": SchemaType.PROTOBUF}

Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar="SKYLOG_REGISTRY",
        help="Address of the registry; several are separated by commas.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="How to reach the registry, with Confluent's names, such as basic.auth.user.info; can be repeated. "
        "basic.auth.credentials.source=SASL_INHERIT logs in with the user of --config.",
        show_default=False,
    ),
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="For values of a topic usually TOPIC-value.")]
SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .json (JSON Schema) or .proto.")]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one uses, by the name it has there; can be repeated.",
        show_default=False,
    ),
]
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"


@app.command("list")
def list_schemas(
    prefix: Annotated[str, typer.Option("--prefix", help="Only subjects that begin with this.")] = "",
    json: AsJson = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: Settings = None,
) -> None:
    """List the subjects with their latest version.

    [bold]skylog schemas list --prefix orders[/]
    """
    client = _client(registry, settings)
    found = [(client.latest(subject), client.config(subject)) for subject in client.subjects(prefix)]
    if json:
        print_json([{**_document(each), "compatibility": level} for each, level in found])
        return
    if not found:
        wanted = f" that begin with {prefix}" if prefix else ""
        note(f"there are no subjects{wanted}; see: skylog schemas register --help")
        return
    rows = [(each.subject, each.version, each.id, each.schema.kind, level) for each, level in found]
    print_table(("SUBJECT", "VERSION", "ID", "TYPE", "COMPATIBILITY"), rows, numbers=("VERSION", "ID"))


@app.command("show")
def show(
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT", help="A subject; or give --id.")] = None,
    version: Annotated[str, typer.Option("--version", help="A version of the subject.")] = "latest",
    schema_id: Annotated[
        int | None, typer.Option("--id", min=0, help="The id of a schema, as messages have it.", show_default=False)
    ] = None,
    json: AsJson = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: Settings = None,
) -> None:
    """Show a schema.

    [bold]skylog schemas show orders-value --version 2[/]
    """
    client = _client(registry, settings)
    if (subject is None) == (schema_id is None):
        raise SkylogError("give a subject or --id")
    if schema_id is not None:
        schema = client.schema_by_id(schema_id)
        if json:
            print_json({"id": schema_id, **_schema_document(schema)})
        else:
            write(_laid_out(schema))
        return
    assert subject is not None
    found = client.version(subject, version)
    if json:
        print_json({**_document(found), "versions": client.versions(subject)})
        return
    versions = ", ".join(map(str, client.versions(subject)))
    print_heading(found.subject, f"version {found.version} of {versions}, id {found.id}, {found.schema.kind}")
    write(_laid_out(found.schema))


@app.command("check")
def check(
    subject: Subject,
    file: SchemaFile,
    references: References = None,
    kind: Annotated[
        SchemaType | None, typer.Option("--type", help="The format.", show_default="by the file's name")
    ] = None,
    json: AsJson = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: Settings = None,
) -> None:
    """Check whether a schema could be registered, and say why not. Exit code 1 if it could not.

    [bold]skylog schemas check orders-value order.avsc[/]
    """
    client = _client(registry, settings)
    schema = _read(file, kind, references)
    known = client.lookup(subject, schema)
    verdict = client.compatible(subject, schema)
    if json:
        version = None if known is None else known.version
        print_json({"compatible": verdict.is_compatible, "version": version, "messages": list(verdict.messages)})
    elif known is not None:
        note(f"{file} is version {known.version} of {subject}, id {known.id}")
    elif verdict.is_compatible:
        note(f"{file} can become a version of {subject} ({client.config(subject)})")
    else:
        note(f"{file} does not fit {subject} ({client.config(subject)}):")
        for message in verdict.messages:
            note(f"  {message}")
    if not verdict.is_compatible:
        raise typer.Exit(1)


@app.command("register")
def register(
    subject: Subject,
    file: SchemaFile,
    references: References = None,
    kind: Annotated[
        SchemaType | None, typer.Option("--type", help="The format.", show_default="by the file's name")
    ] = None,
    json: AsJson = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: Settings = None,
) -> None:
    """Register a schema as the next version of a subject, unless it is one already.

    [bold]skylog schemas register orders-value order.avsc[/]
    """
    client = _client(registry, settings)
    schema = _read(file, kind, references)
    client.register(subject, schema)
    found = client.lookup(subject, schema)
    if found is None:
        raise SkylogError(f"{subject} was deleted just now; register the schema again")
    if json:
        print_json({"subject": subject, "version": found.version, "id": found.id})
    else:
        note(f"{file} is version {found.version} of {subject}, id {found.id}")


def _client(registry: str, settings: Sequence[str] | None) -> RegistryClient:
    chosen = {URL: registry, **dict(parse_pairs(settings, "--set"))}
    source = chosen.pop(CREDENTIALS_SOURCE, USER_INFO_SOURCE)
    if source == SASL_INHERIT:
        from skylog.client import Connection

        login = Connection().login()
        if login is None:
            raise SkylogError(f"{CREDENTIALS_SOURCE}={SASL_INHERIT} needs a login in the file of SKYLOG_CONFIG")
        chosen[USER_INFO] = ":".join(login)
    elif source != USER_INFO_SOURCE:
        raise SkylogError(f"{CREDENTIALS_SOURCE}: expected {USER_INFO_SOURCE} or {SASL_INHERIT}, not '{source}'")
    return RegistryClient(chosen)


def _read(file: Path, kind: SchemaType | None, references: Sequence[str] | None) -> SchemaText:
    found = kind or KINDS.get(file.suffix.lower())
    if found is None:
        raise SkylogError(f"{file}: the name ends with none of {', '.join(KINDS)}; give the format with --type")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SkylogError(f"cannot read {file}: {error}") from error
    return SchemaText(text, found.value, tuple(_reference(*pair) for pair in parse_pairs(references, "--reference")))


def _reference(name: str, place: str) -> Reference:
    subject, _, version = place.rpartition(":")
    if not subject or not version.isdecimal():
        raise typer.BadParameter(f"expected NAME=SUBJECT:VERSION, got '{name}={place}'", param_hint="--reference")
    return Reference(name, subject, int(version))


def _document(found: RegisteredSchema) -> dict[str, object]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        **_schema_document(found.schema),
    }


def _schema_document(schema: SchemaText) -> dict[str, object]:
    references = [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references]
    return {"type": schema.kind, "schema": schema.text, "references": references}


def _laid_out(schema: SchemaText) -> str:
    """Return the text, with the layout of JSON if it is JSON."""
    if schema.kind == SchemaType.PROTOBUF:
        return schema.text
    try:
        return json_format.dumps(json_format.loads(schema.text), indent=2, ensure_ascii=False) + "\n"
    except ValueError:
        return schema.text
