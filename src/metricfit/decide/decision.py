"""The decision itself: how logits become decisions, and how good these are on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from metricfit.core.threshold_vectors import PerLabel
from metricfit.decide.calibration import Calibration, LabelCalibration
from metricfit.decide.costs.expected_costs import minus_expected_costs
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import RequirementValue

#: What may be said about requirements with a confidence. The tests are exact for scores of a model that was fitted
#: without these rows. New rows have scores of other models than rows out of fold, so there the tests are approximate.
GUARANTEED = "guaranteed"
APPROXIMATE = "certified on cross-validated scores (approximate)"


@dataclass(frozen=True)
class Decision:
    """How logits become decisions, and how good these are on held-out rows.

    Exactly one of ``threshold``, ``offsets`` and ``thresholds`` is not None.

    Attributes:
        value: The value of the metric on the held-out rows, on which the decision was chosen.
        threshold: The threshold of logits, for two classes.
        interval: The bootstrap interval of the threshold, extended to all thresholds that make the same decisions on
            the held-out rows; None for several classes.
        value_interval: The bootstrap interval of the value.
        offsets: For several classes, the offsets that are added to logits before the argmax; with ``costs``, to minus
            the expected costs.
        requirements: The result of each requirement on the held-out rows; the keys are the requirements as text.
        not_reachable: None if the threshold meets the requirements; otherwise what is reachable. The threshold is then
            the one with the smallest violation.
        corrected_value: An estimate of the value on new rows (``decide.optimism``); under requirements the value on
            the held-out rows.
        corrected_interval: The bootstrap interval of the corrected value.
        thresholds: For several labels, one threshold of logits per label.
        label_intervals: For several labels, the bootstrap intervals of the thresholds, ``(c, 2)``.
        costs: For several classes and a metric of the whole confusion matrix, the cost of deciding j for a row of
            class i, ``(c, c)``. The expected costs decide (``decide.costs``).
        calibration: The calibration of the logits, for ``probabilities``; None if they are calibrated already or if
            the decision was chosen without a calibration.
        confidence: The probability with which the requirements hold on new rows (``decide.guarantees``); None if they
            are met on the held-out rows alone, or not at all.
        out_of_fold: Whether the held-out scores are cross-validated, so that new rows are scored by other models.
        refer: For two classes, the region of logits that is referred to a person (``decide.best_referral``): from the
            first number on and below the second. It contains the threshold. None if every row is decided.
        referred_share: The share of the held-out rows that is in the region; value, intervals and requirements are
            those of the others.
        cost_margins: Whether the threshold is one of cost margins, because rows have costs of their own
            (``decide.costs``): logits alone cannot be decided, and an estimator adds the costs of the rows.

    Raises:
        InvalidValueError: None of the three is given, or more than one; or the region does not contain the threshold.

    Example:
        >>> Decision(value=0.8, threshold=-1.0).decide(torch.tensor([-2.0, 0.5]))
        tensor([0, 1])
    """

    value: float
    threshold: float | None = None
    interval: tuple[float, float] | None = None
    value_interval: tuple[float, float] | None = None
    offsets: Tensor | None = None
    requirements: Mapping[str, RequirementValue] = field(default_factory=dict)
    not_reachable: str | None = None
    corrected_value: float | None = None
    corrected_interval: tuple[float, float] | None = None
    thresholds: Tensor | None = None
    calibration: Calibration | LabelCalibration | None = None
    confidence: float | None = None
    label_intervals: Tensor | None = None
    costs: Tensor | None = None
    refer: tuple[float, float] | None = None
    referred_share: float = 0.0
    cost_margins: bool = False
    out_of_fold: bool = False

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.threshold, self.offsets, self.thresholds)) != 1:
            raise InvalidValueError(
                "a decision has one of: a threshold (two classes), offsets (several classes), thresholds (labels)"
            )

        if self.refer is not None and (self.threshold is None or not self.refer[0] <= self.threshold <= self.refer[1]):
            raise InvalidValueError(f"the region to refer, {self.refer}, must contain a threshold of two classes")

    @property
    def certificate(self) -> str | None:
        """What is known about the requirements on new rows, at the probability ``confidence``.

        It is ``GUARANTEED`` for scores of a model that was fitted without these rows, and ``APPROXIMATE`` for
        cross-validated scores. It is None without a confidence, or if no decision could be certified.

        Example:
            >>> Decision(value=0.8, threshold=0.0, confidence=0.9).certificate
            'guaranteed'
            >>> Decision(value=0.8, threshold=0.0, confidence=0.9, out_of_fold=True).certificate
            'certified on cross-validated scores (approximate)'
        """
        if self.confidence is None:
            return None
        return APPROXIMATE if self.out_of_fold else GUARANTEED

    def margins(self, logits: Tensor) -> Tensor:
        """Shift logits so that the decision is at 0 (two classes, labels) or the largest wins (several classes).

        Args:
            logits: Logits ``(n, 1)`` (or ``(n,)``) for two classes, ``(n, c)`` for several classes or labels.

        Returns:
            Shifted logits, ``(n,)`` for two classes and ``(n, c)`` for several classes or labels.
        """
        if self.offsets is not None:
            return self.scores(logits) + self.offsets
        if self.thresholds is not None:
            return logits - self.thresholds
        assert self.threshold is not None
        return logits.reshape(-1) - self.threshold

    def scores(self, logits: Tensor) -> Tensor:
        """Return what offsets are added to: the logits, or with ``costs`` minus the expected costs.

        Args:
            logits: Logits ``(n, c)`` of several classes.

        Returns:
            Scores ``(n, c)``.
        """
        return logits if self.costs is None else minus_expected_costs(self.probabilities(logits), self.costs)

    def referred(self, logits: Tensor) -> Tensor:
        """Return which rows are referred to a person; ``decide`` decides these too, by the threshold.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            One boolean per row.

        Example:
            >>> Decision(value=0.8, threshold=0.0, refer=(-1.0, 0.5)).referred(torch.tensor([-2.0, 0.0, 0.5]))
            tensor([False,  True, False])
        """
        if self.refer is None:
            return torch.zeros(len(logits), dtype=torch.bool)
        scores = logits.reshape(-1)
        return (scores >= self.refer[0]) & (scores < self.refer[1])

    def decide(self, logits: Tensor) -> Tensor:
        """Decide each row.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            Class numbers ``(n,)``, 0 and 1 for two classes; for several labels 0 and 1 in ``(n, c)``.
        """
        margins = self.margins(logits)
        return (margins >= 0).long() if self.offsets is None else margins.argmax(1)

    def as_threshold(self) -> float | PerLabel:
        """Return the threshold as a probability, or one per label as ``metrics.PerLabel``.

        ``evaluate``, ``Monitor``, ``Accumulator``, ``Counts``, ``MetricLoss`` and ``metrics.PerLabel`` call it, so a
        decision can be passed there itself: ``evaluate(model, data, threshold=decision)``. A calibration changes
        nothing, because thresholds are those of the logits before it.

        Returns:
            The threshold or thresholds of ``sigmoid(logit)``.

        Raises:
            InvalidValueError: The decision is one of several classes, or about costs of each row.

        Example:
            >>> Decision(value=0.8, threshold=0.0).as_threshold()
            0.5
            >>> Decision(value=0.8, thresholds=torch.tensor([0.0, -1.0])).as_threshold()
            PerLabel([0.5, 0.2689414213699951])
        """
        if self.cost_margins:
            raise InvalidValueError("this decision is about costs of each row, so it has no threshold of probabilities")
        if self.offsets is not None:
            raise InvalidValueError(
                "this decision is one of several classes, without thresholds; measure its labels: "
                f"Counts.from_labels(decision.decide(logits), target, num_classes={len(self.offsets)})"
            )
        if self.thresholds is not None:
            return PerLabel.from_logits(self.thresholds)
        assert self.threshold is not None
        return PerLabel.from_logits([self.threshold]).tolist()[0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities of logits, calibrated if the decision has a calibration.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            The probability of the positive class ``(n,)`` for two classes, of each class or label ``(n, c)``
            otherwise.

        Example:
            >>> decision = Decision(value=0.8, threshold=0.0, calibration=Calibration(2.0, torch.tensor([0.0])))
            >>> decision.probabilities(torch.tensor([0.0, 2.0])).round(decimals=2)
            tensor([0.5000, 0.7300], dtype=torch.float64)
        """
        z = logits.reshape(-1, 1) if self.threshold is not None else logits
        z = z.double() if self.calibration is None else self.calibration(z)
        if self.offsets is not None:
            return torch.softmax(z, dim=1)
        probabilities = torch.sigmoid(z)
        return probabilities if self.threshold is None else probabilities.squeeze(1)
