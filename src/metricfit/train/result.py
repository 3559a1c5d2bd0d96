"""FitResult: what training returns, and how a run's folder keeps it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from metricfit.train.engine.stacked_objective import with_state
from metricfit.train.engine.validation import RequirementResult
from metricfit.train.history import History


@dataclass(frozen=True)
class FitResult:
    """What ``fit`` returns.

    Attributes:
        model: the trained model, with its best weights where there was a validation set, in eval mode.
        history: one row an epoch.
        best: the monitored value of the last stage's best epoch; NaN without validation.
        threshold: the threshold it was taken at; NaN where there is none.
        seconds: how long this call trained.
        objective: the last stage's, a copy of the one given, with what it has learned, such as multipliers.
        requirements: for each requirement of the last stage's monitor and objective, whether it holds.
    """

    model: nn.Module
    history: History
    best: float
    threshold: float
    seconds: float
    objective: nn.Module | None = None
    requirements: tuple[RequirementResult, ...] = ()

    def state(self) -> dict[str, Any]:
        """What ``from_state`` needs to make the result again."""
        return {
            "model": self.model.state_dict(),
            "objective": None if self.objective is None else self.objective.state_dict(),
            "history": self.history.rows,
            "best": self.best,
            "threshold": self.threshold,
            "requirements": [asdict(each) for each in self.requirements],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], model: nn.Module, objective: nn.Module) -> FitResult:
        """The result of a finished run, with its weights in this model.

        Args:
            state: What ``state`` returned.
            model: Takes the weights.
            objective: The last stage's, which is copied.
        """
        model.load_state_dict(state["model"])
        requirements = tuple(RequirementResult(**each) for each in state.get("requirements", ()))
        learned = with_state(objective, state["objective"])
        history = History(state["history"])
        return cls(model.eval(), history, state["best"], state["threshold"], 0.0, learned, requirements)


def report_of(results: list[FitResult]) -> dict[str, Any]:
    """What a run's report says of the results; of several members, a list of each number."""
    columns = {
        "best": [result.best for result in results],
        "threshold": [result.threshold for result in results],
        "requirements": [[asdict(each) for each in result.requirements] for result in results],
        "epochs": [len(result.history) for result in results],
    }
    return {**columns, "seconds": results[0].seconds}
