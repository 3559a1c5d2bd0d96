"""What a comparison is about, kept beside its trainings, so that a changed table or option is explained in words."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit._files import hash_bytes, parse_json, write_file
from metricfit.data.columns import quote_label
from metricfit.errors import quote
from metricfit.runs.cells import Cell, CellError
from metricfit.tabular.families.family import Integers

log = logging.getLogger("metricfit.tabular")

FILE = "comparison.json"
#: Settings that trainings may differ in: those that depend on them have names of their own.
SHARED = ("metric", "average", "subject_to", "confidence", "methods")
#: Maximum number of columns that a message names.
MOST_NAMES = 5
#: What settings are called in messages.
SPOKEN = {
    "subject_to": "requirements",
    "time_budget": "time budget",
    "positive": "positive class",
    "group": "column of groups",
    "time": "column of times",
}

Description = dict[str, Any]


class ChangedRunError(CellError):
    """The folder holds a comparison of another table or with other options.

    Args:
        message: What has changed, and what to do.
        changes: What has changed, one phrase each.
    """

    def __init__(self, message: str, changes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.changes = list(changes)


def describe_table(X: pd.DataFrame, y: Integers, classes: Sequence[str], groups: Any) -> Description:
    """Describe a table by its rows, columns and classes, with a hash of every column.

    Args:
        X: The features.
        y: Class numbers.
        classes: The names of the classes.
        groups: One group per row, or None.

    Returns:
        Values that JSON can hold.
    """
    row_hashes = {str(name): _row_hashes(column) for name, column in X.items()}
    labels = pd.util.hash_array(np.ascontiguousarray(y))
    mixed = sum(hashes * np.uint64(2 * index + 3) for index, hashes in enumerate([labels, *row_hashes.values()]))
    return {
        "rows": len(X),
        "columns": {
            name: {"kind": _kind(X[name]), "hash": hash_bytes(hashes.tobytes())} for name, hashes in row_hashes.items()
        },
        "classes": {name: int((y == number).sum()) for number, name in enumerate(classes)},
        "labels": hash_bytes(labels.tobytes()),
        "groups": None if groups is None else hash_bytes(_row_hashes(pd.Series(groups)).tobytes()),
        "rows in any order": hash_bytes(np.sort(mixed).tobytes()),
    }


def continue_run(root: Path, name: str, now: Description) -> None:
    """Check that a folder holds trainings of the same table and options, or none, and keep the description there.

    Args:
        root: The folder that keeps the trainings.
        name: The name of the table.
        now: The description of the table, with the settings of the comparison.

    Raises:
        ChangedRunError: The folder holds trainings of another table or with other options; the message says which.
    """
    path = Cell((name,), {}).folder(root) / FILE
    before = _read(path)
    if before is not None:
        changes = list_changes(before, now)
        if changes:
            raise ChangedRunError(
                f"{root} holds a comparison of another table or with other options: {'; '.join(changes)}. Choose "
                "another folder to keep both, or remove that one.",
                changes,
            )
        changes = _changed_settings(before, now, SHARED)
        if changes:
            log.warning("%s: trainings in %s that do not depend on it are used again", "; ".join(changes), root)
    write_file(path, json.dumps(now, indent=1).encode())


def other_tables(root: Path, name: str) -> list[str]:
    """Return the names of other tables whose trainings a folder keeps.

    Args:
        root: The folder that keeps the trainings.
        name: The name of this table.
    """
    own = Cell((name,), {}).folder(root).name
    return sorted(path.parent.name for path in root.glob(f"*/{FILE}") if path.parent.name != own)


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in words how a table and the options that all trainings depend on have changed.

    Args:
        before: The description that was kept.
        now: The present one.

    Returns:
        One phrase per change.

    Example:
        >>> list_changes({"rows": 1200, "folds": 5}, {"rows": 1250, "folds": 10})
        ['rows 1,200 -> 1,250', 'folds 5 -> 10']
    """
    settings = [key for key in now if key not in {*SHARED, *TABLE}]
    return [*_changed_table(before, now), *_changed_settings(before, now, settings)]


#: The entries of a description that are about the table.
TABLE = ("rows", "columns", "classes", "labels", "groups", "rows in any order")


def _changed_table(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    changes = []
    if before.get("rows") != now.get("rows"):
        changes.append(f"rows {before.get('rows', 0):,} -> {now['rows']:,}")
    old, new = before.get("columns", {}), now.get("columns", {})
    changes += _about([name for name in new if name not in old], "is new", "are new")
    changes += _about([name for name in old if name not in new], "is gone", "are gone")
    both = [name for name in new if name in old]
    for name in both:
        if old[name]["kind"] != new[name]["kind"]:
            changes.append(f"column {quote(name)} held {old[name]['kind']} and holds {new[name]['kind']} now")
    if changes:
        return changes
    if before.get("rows in any order") == now.get("rows in any order") and (
        before.get("labels") != now.get("labels") or any(old[name] != new[name] for name in both)
    ):
        return ["the same rows are in another order"]
    changes += _about([name for name in both if old[name] != new[name]], "has other values", "have other values")
    if before.get("labels") != now.get("labels"):
        counts = [
            f"{quote_label(label)} {before.get('classes', {}).get(label, 0):,} -> {now['classes'].get(label, 0):,} rows"
            for label in {**before.get("classes", {}), **now.get("classes", {})}
            if before.get("classes", {}).get(label, 0) != now["classes"].get(label, 0)
        ]
        changes.append("the labels have changed" + (f" ({', '.join(counts)})" if counts else ""))
    if before.get("groups") != now.get("groups"):
        changes.append("the groups have changed")
    return changes


def _changed_settings(before: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [
        f"{SPOKEN.get(name, name)} {_spoken(before.get(name))} -> {_spoken(now[name])}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _about(names: Sequence[str], one: str, several: str) -> list[str]:
    """Say something about columns; of many, some are named."""
    if not names:
        return []
    listed = ", ".join(quote(name) for name in names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        listed += f" and {len(names) - MOST_NAMES} more"
    return [f"column {listed} {one}" if len(names) == 1 else f"columns {listed} {several}"]


def _spoken(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _kind(column: pd.Series) -> str:
    """Return what a column holds, in words."""
    if pd.api.types.is_bool_dtype(column):
        return "true and false"
    if pd.api.types.is_numeric_dtype(column):
        return "numbers"
    return "dates" if pd.api.types.is_datetime64_any_dtype(column) else "text"


def _row_hashes(column: pd.Series) -> Any:
    hashable = column if pd.api.types.is_numeric_dtype(column) else column.astype(str)
    return pd.util.hash_pandas_object(hashable, index=False).to_numpy()


def _read(path: Path) -> Description | None:
    """Read a description; None if there is none, or one that cannot be read, where cells are compared alone."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
