"""Errors of the registry, with Confluent's codes and messages. The first three digits are the HTTP status."""

from __future__ import annotations

from typing import Any

from skylog.errors import SkylogError


class RegistryError(SkylogError):
    """A request that fails. `code` is Confluent's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    def document(self) -> dict[str, Any]:
        return {"error_code": self.code, "message": str(self)}


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    what = f"Subject '{subject}' Version {version}"
    return RegistryError(40406, f"{what} was soft deleted. Set permanent=true to delete permanently")


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    what = f"Subject '{subject}' Version {version}"
    return RegistryError(40407, f"{what} was not deleted first before being permanently deleted")


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    details = ", ".join(reasons)
    return RegistryError(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{details}]',
    )


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT")


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(42205, reason)


def is_referenced(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def too_large(limit_bytes: int) -> RegistryError:
    return RegistryError(42209, f"Write failed because schema is too large: the limit is {limit_bytes} bytes")


def unprocessable(reason: str) -> RegistryError:
    return RegistryError(422, reason)


def store_error(reason: str) -> RegistryError:
    return RegistryError(50001, f"Error in the backend data store: {reason}")


def timed_out(reason: str) -> RegistryError:
    return RegistryError(50002, f"Operation timed out: {reason}")


def forwarding_failed(reason: str) -> RegistryError:
    return RegistryError(50003, f"Error while forwarding the request to the primary: {reason}")


def no_writer(reason: str) -> RegistryError:
    return RegistryError(50004, f"Unknown leader: {reason}")
