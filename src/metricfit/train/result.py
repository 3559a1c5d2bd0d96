"""FitResult: what training returns, and how the folder of a run stores it."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from metricfit.train.engine.validation import RequirementResult
from metricfit.train.history import History


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


def make_report(results: list[FitResult]) -> dict[str, Any]:
    """Return the content of a run's report: a list with one entry per member for each quantity."""
    columns = {
        "best": [result.best for result in results],
        "threshold": [result.threshold for result in results],
        "requirements": [[asdict(requirement) for requirement in result.requirements] for result in results],
        "epochs": [len(result.history) for result in results],
    }
    return {**columns, "seconds": results[0].seconds}
