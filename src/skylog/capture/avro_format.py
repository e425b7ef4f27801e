"""Avro as the format of a capture: registers the schemas of tables when they are described."""

from __future__ import annotations

from collections.abc import Sequence

from skylog.capture.avro_rows import SOME, AvroRows
from skylog.capture.avro_schemas import envelope_schema, key_schema, row_schema
from skylog.capture.pgoutput import Column
from skylog.capture.rows import Rows
from skylog.capture.table import CaptureError
from skylog.schemas.framing import prefix
from skylog.schemas.registry_client import IncompatibleSchemaError, RegistryClient, SchemaText
from skylog.schemas.registry_http import RegistryError, RegistryUnreachableError


class AvroFormat:
    """Makes the rows of tables. A table that has changed has other schemas, which become a version of their subjects.

    The subjects are TOPIC-key and TOPIC-value. The client knows the ids of what it has registered. So the registry is
    asked for each version of a table, not for each row. Safe in any thread.
    """

    def __init__(self, registry: RegistryClient, *, has_envelope: bool) -> None:
        self._registry = registry
        self._has_envelope = has_envelope

    def rows(self, topic: str, columns: Sequence[Column], key: Sequence[str]) -> Rows:
        """Register the schemas of a table. Raises CaptureError if the registry refuses them.

        Raises RegistryUnreachableError if it does not answer.
        """
        schema_of = envelope_schema if self._has_envelope else row_schema
        key_prefix = prefix(self._register(f"{topic}-key", key_schema(topic, columns, key)))
        value_prefix = prefix(self._register(f"{topic}-value", schema_of(topic, columns, key)))
        row_prefix = SOME if self._has_envelope else value_prefix
        return AvroRows(columns, key, key_prefix, row_prefix, value_prefix)

    def _register(self, subject: str, schema: str) -> int:
        try:
            return self._registry.register(subject, SchemaText(schema))
        except RegistryUnreachableError:
            raise
        except IncompatibleSchemaError as error:
            raise CaptureError(
                f"the table has changed so that its schema does not fit the versions of {subject}: {error}; if readers "
                f"can cope, set the compatibility of {subject} to NONE in the registry, and start again"
            ) from error
        except RegistryError as error:
            raise CaptureError(f"the registry refuses the schema of {subject}: {error}") from error
