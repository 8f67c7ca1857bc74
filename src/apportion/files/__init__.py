"""Files of rollouts: JSON lines and Parquet, our own and those of others. `docs/rollout-files.md` describes them."""

from apportion.files.formats import FORMATS, load
from apportion.files.rows import SCHEMA, row_of, save
from apportion.files.storage import Row, not_written, read_rows, write_atomically, write_rows

__all__ = [
    "FORMATS",
    "SCHEMA",
    "Row",
    "load",
    "not_written",
    "read_rows",
    "row_of",
    "save",
    "write_atomically",
    "write_rows",
]
