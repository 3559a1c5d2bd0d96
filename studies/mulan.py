"""The multilabel tables of Mulan: ARFF files with the names of the labels in an XML file beside them."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Tables with more columns are sparse counts of words, which are scaled but not centred.
MOST_DENSE_COLUMNS = 400


def read(data: Path, name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read the columns and the labels of a table in the format of Mulan, training and test rows together."""
    folder = data / "multilabel"
    labels = re.findall(r'label name="([^"]+)"', (folder / f"{name}.xml").read_text(encoding="utf-8"))
    parts = [_read_part(folder / f"{name}-{part}.arff.xz") for part in ("train", "test")]
    columns, values = parts[0][0], np.concatenate([part for _, part in parts])
    places = [columns.index(label.replace("\\", "")) for label in labels]
    return np.delete(values, places, axis=1), values[:, places].astype(np.int64)


def _read_part(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    columns: list[str] = []
    nominal: dict[int, dict[str, float]] = {}
    rows = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in map(str.strip, lines):
            if line.lower().startswith("@attribute"):
                name, kind = re.match(r"@attribute\s+('(?:[^'\\]|\\.)*'|\S+)\s+(.*)", line, re.IGNORECASE).groups()
                columns.append(name.strip("'").replace("\\", ""))
                if kind.startswith("{"):
                    entries = [entry.strip().strip("'") for entry in kind.strip("{} ").split(",")]
                    nominal[len(columns) - 1] = {
                        entry: float(entry) if re.fullmatch(r"[\d.]+", entry) else float(place)
                        for place, entry in enumerate(entries)
                    }
            elif line.startswith("{"):
                row = np.zeros(len(columns))
                for entry in filter(str.strip, line.strip("{}").split(",")):
                    place, value = entry.split()
                    row[int(place)] = nominal[int(place)][value.strip("'")] if int(place) in nominal else float(value)
                rows.append(row)
            elif line and line[0] not in "@%":
                entries = [entry.strip().strip("'") for entry in line.split(",")]
                rows.append(
                    np.array([nominal[i][entry] if i in nominal else float(entry) for i, entry in enumerate(entries)])
                )
    return columns, np.stack(rows)
