"""Files of rollouts: JSON lines and Parquet. `docs/rollout-files.md` describes a row."""

from apportion.files.rows import SCHEMA, load, row_of, save
from apportion.files.storage import Row, read_rows, write_atomically, write_rows

__all__ = ["SCHEMA", "Row", "load", "read_rows", "row_of", "save", "write_atomically", "write_rows"]
