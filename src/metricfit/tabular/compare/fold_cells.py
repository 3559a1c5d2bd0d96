"""The cells of a comparison: one method trained on all folds but one, and judged on that fold."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit._files import hash_bytes, to_json_value
from metricfit.core.counts import Counts
from metricfit.metrics import get_metric, parse_requirement
from metricfit.runs.cells import Cell
from metricfit.tabular.compare.effort import shared_effort
from metricfit.tabular.compare.methods import DEFAULT, Method, train

#: Entries of a cell's spec that are no settings of a method.
NOT_SETTINGS = ("data", "parts", "if_not_reachable")


@dataclass(frozen=True)
class FoldCell(Cell):
    """A cell that knows its method and the index of its test fold."""

    method: Method
    fold: int


@dataclass(frozen=True)
class ComparisonTask:
    """The data that every cell of a comparison works on.

    Attributes:
        X: The features.
        y: The labels, 1 for the positive class.
        groups: One group per row, or None.
        splits: For each fold, the training rows and the test rows.
        methods: The methods that are compared.
    """

    X: pd.DataFrame
    y: NDArray[np.int64]
    groups: Any
    splits: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
    methods: Sequence[Method]

    def cells(self, name: str, spec: Mapping[str, Any]) -> list[FoldCell]:
        """Return one cell per method and fold."""
        return [
            FoldCell((name, method.name, f"fold {fold}"), spec, method, fold)
            for method in self.methods
            for fold in range(len(self.splits))
        ]

    def plan(self, cell: Cell) -> dict[str, Any]:
        """Decide the effort for all networks on the training rows of the first fold."""
        rows, _ = self.splits[0]
        effort = shared_effort(self.methods, self.X.iloc[rows], self.y[rows], **self._training_settings(cell, rows))
        return {"effort": effort}

    def judge(self, cell: Cell) -> dict[str, Any]:
        """Train a method on all folds but one, and judge it on that fold.

        Where no threshold meets the requirements on the training rows, the nearest threshold decides, and the report
        says what was reachable.
        """
        assert isinstance(cell, FoldCell)
        method = cell.method
        training_rows, test_rows = self.splits[cell.fold]
        start = time.perf_counter()
        fitted = train(
            method,
            self.X.iloc[training_rows],
            self.y[training_rows],
            **self._training_settings(cell, training_rows),
        )
        report: dict[str, Any] = {"values": {}, "held": {}, "training_seconds": time.perf_counter() - start}
        # Without a finite threshold no row is called positive.
        report["threshold"] = to_json_value(fitted.threshold)
        if fitted.not_reachable is not None:
            report["not_reachable"] = {method.name: fitted.not_reachable}
        thresholds = {method.name: fitted.threshold}
        if method.at_half is not None:
            thresholds[method.at_half] = 0.5
        scores, labels = fitted.scores(self.X.iloc[test_rows]), torch.from_numpy(self.y[test_rows])
        for name, threshold in thresholds.items():
            counts = Counts.from_labels(torch.from_numpy((scores >= threshold).astype(int)), labels)
            report["values"][name] = get_metric(cell.spec["metric"])(counts).item()
            report["held"][name] = all(
                bool(parse_requirement(requirement).holds(counts).all()) for requirement in cell.spec["subject_to"]
            )
        if method.name == DEFAULT:
            report |= {"scores": scores.tolist(), "histories": losses_by_member(fitted.model.history_)}
        return report

    def _training_settings(self, cell: Cell, rows: NDArray[np.int64]) -> dict[str, Any]:
        settings = {key: value for key, value in cell.spec.items() if key not in NOT_SETTINGS}
        return settings | {"groups": None if self.groups is None else np.asarray(self.groups)[rows]}


def losses_by_member(history: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return each member's losses by epoch; None replaces numbers that are not finite, which JSON cannot hold."""
    members: dict[int, list[dict[str, Any]]] = {}
    for epoch in history:
        losses = {name: epoch.get(name) for name in ("train_loss", "validation_loss")}
        members.setdefault(epoch["member"], []).append(to_json_value(losses))
    return list(members.values())


def fingerprint(X: pd.DataFrame, y: NDArray[np.int64], groups: Any) -> str:
    """Return a hash of the rows, so that cells of another table are not taken for cells of this one."""
    table = X if groups is None else X.assign(**{"\x1fgroup": groups})
    hashable = table.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else column.astype(str))
    hashes = pd.util.hash_pandas_object(hashable, index=False).to_numpy().tobytes()
    types = "\x1f".join(f"{name}\x1e{dtype}" for name, dtype in table.dtypes.items()).encode()
    return hash_bytes(hashes + np.ascontiguousarray(y).tobytes() + types)
