"""The position of a run, which its checkpoints hold: stage, epoch, batch, step, and each member's best result."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from metricfit.train.monitored_value import Measured


@dataclass
class Standing:
    """The best measurement of a member in a stage so far, and the number of epochs since."""

    best: float = math.nan
    best_epoch: int = -1
    threshold: float | tuple[float, ...] = math.nan
    waited: int = 0
    feasible: bool = True
    violation: float = 0.0
    succeeded: bool = False  # whether an epoch has met the objective's requirements

    @property
    def measured(self) -> Measured:
        """The best measurement; its value is NaN before the first."""
        return Measured(self.best, self.threshold, self.feasible, self.violation)

    def improve(self, measured: Measured, epoch: int) -> None:
        """Make this measurement the best."""
        self.best, self.threshold = measured.value, measured.threshold
        self.feasible, self.violation = measured.feasible, measured.violation
        self.best_epoch, self.waited = epoch, 0


@dataclass
class Position:
    """The position of the loop; ``loss_sum`` and ``standings`` have one entry per member."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: list[float] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def begin_stage(self, number: int, members: int) -> None:
        """Go to the first batch of a stage."""
        self.stage, self.epoch, self.batch = number, 0, 0
        self.loss_sum = [0.0] * members
        self.standings = [Standing() for _ in range(members)]

    def next_epoch(self) -> None:
        """Go to the first batch of the next epoch."""
        self.epoch, self.batch, self.loss_sum = self.epoch + 1, 0, [0.0] * len(self.loss_sum)
