"""Columns of a batch in a file that `apportion lint` reads."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from apportion import files


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write tensors, numbers and names to an `.npz`, or raise InputError where that cannot be done."""
    import numpy

    arrays: dict[str, Any] = {
        name: column.cpu().numpy() if isinstance(column, Tensor) else column for name, column in columns.items()
    }
    content = io.BytesIO()
    numpy.savez(content, **arrays)
    files.write_atomically(path, content.getvalue())
