"""Avro messages as Arrow columns, without a Python object per message. Requires pyarrow.

A schema is parsed to a `WriterType`. The columns are a `Shape`, which may come from several versions of a schema. For
each pair of the two there is a plan of nodes, each of which reads one field of all messages at once.
"""

from skylog.schemas.avro_columns.messages import MessageDecoder
from skylog.schemas.avro_columns.shape import Shape, ShapeError, shape_of_versions
from skylog.schemas.avro_columns.writer_types import parse_writer

__all__ = ["MessageDecoder", "Shape", "ShapeError", "parse_writer", "shape_of_versions"]
