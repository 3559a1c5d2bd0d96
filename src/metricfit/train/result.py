"""FitResult: what training returns, and how the folder of a run stores it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from metricfit.errors import UnknownNameError
from metricfit.metrics.registry import resolve_aliases

#: The threshold of decisions, or one per label; NaN if the largest logit decides.
Threshold = float | tuple[float, ...]


@dataclass(frozen=True)
class RequirementResult:
    """Whether a requirement holds for the weights that training returned.

    Attributes:
        requirement: The text of the requirement, such as "recall >= 0.9".
        value: The metric's value; with several classes or groups, the worst. NaN if there were no samples for it.
        bound: The bound.
        met: Whether the requirement holds.
        rows: The samples it was measured on: "validation", or "train" without a validation set.
        threshold: The threshold of the decisions, or one per label; NaN if the largest logit decides.

    Example:
        >>> result = RequirementResult("recall >= 0.9", 0.92, 0.9, met=True, rows="validation", threshold=0.4)
        >>> result.met
        True
    """

    requirement: str
    value: float
    bound: float
    met: bool
    rows: str
    threshold: Threshold


@dataclass(frozen=True)
class FitResult:
    """The result of ``fit``.

    Attributes:
        model: The trained model in eval mode; with a validation set, it has the best weights.
        history: The history, with one row per epoch.
        best: The monitored value of the best epoch of the last stage; NaN without validation.
        threshold: The threshold that it was measured at, or one per label, which ``metrics.PerLabel`` takes; NaN if
            there is none.
        seconds: Duration of the call in seconds.
        objective: A copy of the objective of the last stage, with its state, such as multipliers.
        requirements: For each requirement of the last stage's monitor and objective, whether it holds.

    Example:
        >>> result = FitResult(nn.Linear(3, 1), History(), best=0.8, threshold=0.5, seconds=1.0)
        >>> result.best, result.threshold
        (0.8, 0.5)
    """

    model: nn.Module
    history: History
    best: float
    threshold: float | tuple[float, ...]
    seconds: float
    objective: nn.Module | None = None
    requirements: tuple[RequirementResult, ...] = ()

    def state(self) -> dict[str, Any]:
        """Return what ``from_state`` needs to restore the result.

        Returns:
            A dictionary of tensors, numbers, text and lists.
        """
        return {
            "model": self.model.state_dict(),
            "objective": None if self.objective is None else self.objective.state_dict(),
            "history": self.history.rows,
            "best": self.best,
            "threshold": self.threshold,
            "requirements": [asdict(requirement) for requirement in self.requirements],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], model: nn.Module, objective: nn.Module) -> FitResult:
        """Restore the result of a finished run.

        Args:
            state: What ``state`` returned.
            model: The model that receives the weights.
            objective: The objective of the last stage, which is copied.

        Returns:
            The result.
        """
        model.load_state_dict(state["model"])
        requirements = tuple(RequirementResult(**fields) for fields in state.get("requirements", ()))
        trained_objective = copy.deepcopy(objective)
        trained_objective.load_state_dict(state["objective"])
        history = History(state["history"])
        return cls(model.eval(), history, state["best"], state["threshold"], 0.0, trained_objective, requirements)


def make_report(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of a run's report; of several members, a list with one entry per member for each of them."""
    names = ("best", "threshold", "requirements")
    members = [{name: state[name] for name in names} | {"epochs": len(state["history"])} for state in states]
    if len(members) == 1:
        return members[0]
    return {name: [member[name] for member in members] for name in members[0]} | {"members": len(members)}


Row = dict[str, Any]


class History(Sequence[Row]):
    """A table of training with one row per epoch. ``history["train_loss"]`` is a column, ``history[0]`` a row.

    Args:
        rows: One dictionary per epoch, from the names of columns to their values.

    Raises:
        KeyError: There is no column of this name.

    Example:
        >>> history = History([{"epoch": 0, "train_loss": 0.5}, {"epoch": 1, "train_loss": 0.25}])
        >>> history["train_loss"]
        [0.5, 0.25]
        >>> print(history)
        epoch  train_loss
            0         0.5
            1        0.25
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = [{name: _from_json(value) for name, value in row.items()} for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, key: Any) -> Any:
        """Return a row by number, rows by slice, or a column by name, which may have an alias of a metric, "dice"."""
        if not isinstance(key, str):
            return self.rows[key]
        columns = self.columns
        name = key if key in columns else resolve_aliases(key)
        if name not in columns:
            raise UnknownNameError(f"no column {key!r}; there are {', '.join(columns)}")
        return [row.get(name) for row in self.rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and repr(self.rows) == repr(other.rows)  # so that NaN equals NaN

    __hash__ = None  # type: ignore[assignment]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame.

        Returns:
            A DataFrame with one row per epoch.
        """
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        cells = [self.columns, *([_text(row.get(name)) for name in self.columns] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.columns)})"


def _from_json(value: Any) -> Any:
    """Return thresholds of labels as the tuple that they were before a checkpoint stored them as JSON."""
    return tuple(value) if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple) and value:  # thresholds of labels
        return f"{min(value):.4g} to {max(value):.4g}"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
