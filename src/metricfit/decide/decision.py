"""The decision itself: how logits become decisions, and how good these are on held-out rows.

There is one class per kind of decision: ``ThresholdDecision`` for two classes, ``OffsetDecision`` and ``CostDecision``
for several classes, ``LabelDecision`` and ``TopLabelsDecision`` for several labels, and ``RowCostDecision`` for two
classes with costs of each row. ``Decision`` is what they share; estimators, reports, commands and files use nothing
else. A new kind is a new class here: its fields, ``task``, ``decided_by``, ``margins``, ``describe``, ``before`` and
``attributes``, and a name in ``KINDS``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from metricfit._schema import Content, HasKinds, read, write
from metricfit.core.arrays import in_kind_of, to_numpy
from metricfit.decide.calibration import Calibration, sigmoid, softmax
from metricfit.decide.evidence import NO_EVIDENCE, Ends, Evidence, Referral
from metricfit.errors import InvalidValueError

if TYPE_CHECKING:
    from metricfit.core.arrays import Array
    from metricfit.core.thresholds import PerLabel

#: The class number of rows that are referred to a person.
REFERRED = -1
#: Maximum number of thresholds or offsets that a description lists.
LISTED = 20

Floats = NDArray[np.float64]
Self = TypeVar("Self", bound="Decision")


def in_their_kind(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a method on float64 arrays take tensors as well, and return the kind that it gets."""

    def either(self: Any, logits: Array) -> Any:
        return in_kind_of(method(self, to_numpy(logits, np.float64)), logits)

    either.__doc__, either.__name__ = method.__doc__, method.__name__
    return either


class Decision(HasKinds, ABC):
    """How logits become decisions: what all kinds share.

    Methods take arrays or tensors, and return the kind that they get.

    Attributes:
        evidence: How good the decision is.
        calibration: The calibration of the logits, for ``probabilities``; None if they are calibrated already.
        referral: The region that is referred to a person; None if every row is decided.
        task: What is decided: "binary", "multiclass" or "multilabel".
        decided_by: The fields with the numbers that decide, and the number of axes of each.
        of_row_costs: Whether the decision is about costs of each row, which an estimator takes from columns.

    Example:
        >>> decision = ThresholdDecision(0.5)
        >>> isinstance(decision, Decision), decision.describe()
        (True, 'positive where the probability is at least 0.6225')
    """

    evidence: Evidence
    calibration: Calibration | None
    referral: Referral | None = None
    task: ClassVar[Literal["binary", "multiclass", "multilabel"]]
    decided_by: ClassVar[Mapping[str, int]]
    of_row_costs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, axes in self.decided_by.items():
            _set_numbers(self, name, axes)

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that decide, by the names of their fields."""
        return {name: getattr(self, name) for name in self.decided_by}

    @property
    def outputs(self) -> int:
        """Number of logits per row."""
        return len(np.atleast_1d(next(iter(self.numbers.values()))))

    @abstractmethod
    def margins(self, logits: Array) -> Any:
        """Shift logits so that the decision is at 0 (two classes, labels) or the largest wins (several classes).

        Args:
            logits: Logits ``(n, 1)`` (or ``(n,)``) for two classes, ``(n, c)`` for several classes or labels.

        Returns:
            Shifted logits in float64, ``(n,)`` for two classes and ``(n, c)`` for several classes or labels.
        """

    def probabilities(self, logits: Array) -> Any:
        """Return the probabilities of logits, calibrated if the decision has a calibration.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            The probability of the positive class ``(n,)`` for two classes, of each class or label ``(n, c)``
            otherwise, in float64.
        """
        z = to_numpy(logits, np.float64)
        z = z.reshape(-1) if self.task == "binary" else z
        z = z if self.calibration is None else self.calibration(z)
        return in_kind_of(softmax(z) if self.task == "multiclass" else sigmoid(z), logits)

    @abstractmethod
    def describe(self, names: Sequence[Any] = ()) -> str:
        """Say in a few words how the decision is made, without a full stop.

        Args:
            names: The names of the classes or labels.

        Returns:
            The words.
        """

    @abstractmethod
    def before(self: Self, calibration: Calibration) -> Self:
        """Return the decision about logits z that makes the decisions of this one about calibrated logits.

        Args:
            calibration: The calibration of z.

        Returns:
            The decision.

        Raises:
            InvalidValueError: The decision is about costs of each row, which are added to calibrated logits.
        """

    @abstractmethod
    def attributes(self, place: NDArray[np.int64]) -> dict[str, Any]:
        """Return what a fitted estimator shows of the decision, on the scale of probabilities, by attribute.

        Args:
            place: The class number of each of the estimator's classes.

        Returns:
            The attributes that are not None.
        """

    def decide(self, logits: Array) -> Any:
        """Decide each row, also those that are referred to a person.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            Class numbers ``(n,)``, 0 and 1 for two classes; for several labels 0 and 1 in ``(n, c)``.
        """
        margins = to_numpy(self.margins(logits))
        decided = margins.argmax(1) if self.task == "multiclass" else (margins >= 0).astype(np.int64)
        return in_kind_of(decided, logits)

    def referred(self, logits: Array) -> Any:
        """Return which rows are referred to a person.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            One boolean per row.
        """
        return in_kind_of(np.zeros(len(logits), dtype=bool), logits)

    def decide_or_refer(self, logits: Array) -> Any:
        """Decide each row as ``decide`` does, and return -1 for those that are referred to a person.

        Args:
            logits: Logits, as in ``margins``.

        Returns:
            Class numbers, or -1.
        """
        decided, referred = to_numpy(self.decide(logits)), to_numpy(self.referred(logits))
        return in_kind_of(np.where(referred, REFERRED, decided) if referred.any() else decided, logits)

    def as_threshold(self) -> float | PerLabel:
        """Return the threshold as a probability, or one per label as ``metrics.PerLabel``.

        ``evaluate``, ``Monitor``, ``Accumulator``, ``Counts``, ``MetricLoss`` and ``metrics.PerLabel`` call it, so a
        decision can be passed there itself: ``evaluate(model, data, threshold=decision)``. A calibration changes
        nothing, because thresholds refer to the logits before it.

        Returns:
            The threshold or thresholds of ``sigmoid(logit)``.

        Raises:
            InvalidValueError: The decision has no thresholds of probabilities.
        """
        raise InvalidValueError(
            "this decision is one of several classes, without thresholds; measure its labels: "
            f"Counts.from_labels(decision.decide(logits), target, num_classes={self.outputs})"
        )

    def state(self) -> dict[str, Any]:
        """Return the decision as JSON holds it; ``decision.restore_decision`` makes it again, to the bit.

        Returns:
            The name of the kind, and its parts.
        """
        state: dict[str, Any] = write(Decision, self, "decision", Content())
        return state

    def with_evidence(self: Self, **changes: Any) -> Self:
        """Return the decision with other values of some fields of its evidence.

        Args:
            changes: Fields of ``Evidence`` and their values.

        Returns:
            The new decision.
        """
        return replace(self, evidence=replace(self.evidence, **changes))  # type: ignore[type-var]


@dataclass(frozen=True)
class _OneThreshold(Decision):
    """Rows of two classes are positive from a threshold on."""

    threshold: float
    interval: Ends | None = None
    task = "binary"
    decided_by: ClassVar[Mapping[str, int]] = {"threshold": 0}

    @in_their_kind
    def margins(self, logits: Floats) -> Floats:
        """Return the logits, or cost margins, minus the threshold, ``(n,)``."""
        return logits.reshape(-1) - self.threshold


@dataclass(frozen=True)
class ThresholdDecision(_OneThreshold):
    """A row of two classes is positive from a threshold of its logit on.

    Attributes:
        threshold: The threshold of logits.
        interval: The bootstrap interval of the threshold, extended to all thresholds that make the same decisions on
            the held-out rows.
        referral: The region of logits that is referred to a person (``decide.best_referral``), which contains the
            threshold. None if every row is decided.
        calibration: The calibration of the logits, for ``probabilities``.
        evidence: How good the decision is.

    Raises:
        InvalidValueError: The threshold is NaN, or the region does not contain it.

    Example:
        >>> decision = ThresholdDecision(-1.0, calibration=Calibration(2.0, [0.0]))
        >>> decision.decide([-2.0, 0.5]), decision.probabilities([0.0, 2.0]).round(2)
        (array([0, 1]), array([0.5 , 0.73]))
        >>> ThresholdDecision(0.0, referral=Referral(-1.0, 0.5, 0.2)).decide_or_refer([-2.0, 0.0, 0.5])
        array([ 0, -1,  1])
        >>> ThresholdDecision(0.0).as_threshold()
        0.5
    """

    referral: Referral | None = None
    calibration: Calibration | None = None
    evidence: Evidence = NO_EVIDENCE

    def __post_init__(self) -> None:
        super().__post_init__()
        region = self.referral
        if region is not None and not region.low <= self.threshold <= region.high:
            raise InvalidValueError(f"the region to refer, {region}, must contain the threshold {self.threshold:g}")

    @in_their_kind
    def referred(self, logits: Floats) -> NDArray[np.bool_]:
        """Return which rows are in the region that is referred."""
        margins, region = self.margins(logits), self.referral
        if region is None:
            return np.zeros(len(margins), dtype=bool)
        return np.asarray((margins >= region.low - self.threshold) & (margins < region.high - self.threshold))

    def describe(self, names: Sequence[Any] = ()) -> str:
        """Name the threshold of the probability."""
        low, high = _probabilities(self.interval or (0.0, 0.0))
        ends = "" if self.interval is None else f" (95 % interval {low:.4g} to {high:.4g})"
        return f"positive where the probability is at least {to_probability(self.threshold):.4g}{ends}"

    def before(self, calibration: Calibration) -> ThresholdDecision:
        """Return the decision about logits that are not calibrated."""
        region, ends = self.referral, self.interval

        def raw(logit: float) -> float:
            return float(calibration.invert([logit])[0])

        return replace(
            self,
            threshold=raw(self.threshold),
            interval=None if ends is None else (raw(ends[0]), raw(ends[1])),
            referral=None if region is None else Referral(raw(region.low), raw(region.high), region.share),
            calibration=calibration,
        )

    def attributes(self, place: NDArray[np.int64]) -> dict[str, Any]:
        """Return threshold, interval and region as probabilities."""
        region = self.referral
        return {
            "threshold_": to_probability(self.threshold),
            "threshold_interval_": None if self.interval is None else _probabilities(self.interval),
            "refer_region_": None if region is None else _probabilities((region.low, region.high)),
            "referred_share_": 0.0 if region is None else region.share,
        }

    def as_threshold(self) -> float:
        """Return the threshold as a probability; an infinite one stays infinite."""
        return self.threshold if math.isinf(self.threshold) else to_probability(self.threshold)


@dataclass(frozen=True)
class RowCostDecision(_OneThreshold):
    """A row of two classes is positive where a miss is expected to cost more than a false alarm (``decide.costs``).

    It is about cost margins, not about logits: calibrated logits plus the logarithm of the ratio of the row's costs. An
    estimator makes them from the columns that hold the costs.

    Attributes:
        threshold: The threshold of cost margins.
        interval: The bootstrap interval of the threshold.
        calibration: None; cost margins are of calibrated logits.
        evidence: How good the decision is.

    Raises:
        InvalidValueError: The threshold is NaN.

    Example:
        >>> RowCostDecision(0.0).decide([-1.0, 2.0])
        array([0, 1])
    """

    calibration: Calibration | None = None
    evidence: Evidence = NO_EVIDENCE
    of_row_costs = True

    def describe(self, names: Sequence[Any] = ()) -> str:
        """Say that every row has a threshold of its own."""
        return "every row has a threshold of its own, by its costs"

    def before(self, calibration: Calibration) -> RowCostDecision:
        """Refuse: costs are added to calibrated logits."""
        raise InvalidValueError("a decision about costs of each row needs calibrated logits")

    def attributes(self, place: NDArray[np.int64]) -> dict[str, Any]:
        """Return nothing: there is no threshold of probabilities."""
        return {}

    def as_threshold(self) -> float:
        """Refuse: there is no threshold of probabilities."""
        raise InvalidValueError("this decision is about costs of each row, so it has no threshold of probabilities")


@dataclass(frozen=True)
class _Offsets(Decision):
    """Rows are of the class with the largest score plus offset."""

    offsets: Any
    task = "multiclass"
    decided_by: ClassVar[Mapping[str, int]] = {"offsets": 1}

    def scores(self, logits: Floats) -> Floats:
        """Return what the offsets are added to.

        Args:
            logits: Logits ``(n, c)``.

        Returns:
            Scores ``(n, c)``: the logits, or minus the expected costs.
        """
        return logits

    @in_their_kind
    def margins(self, logits: Floats) -> Floats:
        """Return the scores plus the offsets, ``(n, c)``."""
        return np.asarray(self.scores(logits) + self.offsets)

    def attributes(self, place: NDArray[np.int64]) -> dict[str, Any]:
        """Return the offsets in the order of the classes, and the leads that are referred as ratios."""
        region, shown = self.referral, {"offsets_": self.offsets[place]}
        if region is None:
            return shown
        return shown | {"refer_region_": (1.0, float(np.exp(region.high))), "referred_share_": region.share}


@dataclass(frozen=True)
class OffsetDecision(_Offsets):
    """The class whose logit plus offset is largest.

    Attributes:
        offsets: What is added to the logits, ``(c,)``.
        calibration: The calibration of the logits, for ``probabilities``.
        evidence: How good the decision is.
        referral: The leads of the best class over the second best that are referred to a person, from 0 on
            (``decide.best_referral``). None if every row is decided.

    Example:
        >>> OffsetDecision([0.0, 1.5, 0.0]).decide([[1.0, 0.0, 0.0], [2.0, 0.0, 1.0]])
        array([1, 0])
        >>> OffsetDecision([0.0, 0.0, 0.0], referral=Referral(0.0, 1.0, 0.2)).decide_or_refer([[0, 2, 0], [0, 2, 1.5]])
        array([ 1, -1])
    """

    calibration: Calibration | None = None
    evidence: Evidence = NO_EVIDENCE
    referral: Referral | None = None

    def lead(self, logits: Array) -> Floats:
        """Return by how much the best class of each row leads the second best.

        Args:
            logits: Logits ``(n, c)``.

        Returns:
            Differences ``(n,)``, at least 0.
        """
        best = np.sort(to_numpy(self.margins(logits), np.float64), axis=1)
        return np.asarray(best[:, -1] - best[:, -2])

    @in_their_kind
    def referred(self, logits: Floats) -> NDArray[np.bool_]:
        """Return which rows lead by too little."""
        return self.lead(logits) < (self.referral.high if self.referral else 0.0)

    def describe(self, names: Sequence[Any] = ()) -> str:
        """List the offsets."""
        each = zip(names or range(self.outputs), self.offsets, strict=True)
        offsets = [f"{name} {value:+.3g}" for name, value in each]
        return f"the class with the largest log-probability plus offset ({_listed(offsets)})"

    def before(self, calibration: Calibration) -> OffsetDecision:
        """Return the decision about logits that are not calibrated."""
        offsets, region = calibration.temperature * (self.offsets + calibration.bias), self.referral
        if region is not None:  # a lead is a difference of two logits, so that the bias plays no part
            region = replace(region, high=calibration.temperature * region.high)
        return replace(self, offsets=offsets, referral=region, calibration=calibration)


@dataclass(frozen=True)
class CostDecision(_Offsets):
    """The class with the smallest expected cost, with an offset for each class (``decide.costs``).

    Attributes:
        offsets: What is added to minus the expected costs, ``(c,)``.
        costs: The cost of deciding j for a row of class i, ``(c, c)``.
        calibration: The calibration of the logits; None if they are calibrated already.
        evidence: How good the decision is.

    Raises:
        InvalidValueError: A number is NaN, or there are costs of other classes than offsets.

    Example:
        >>> CostDecision([0.0] * 3, [[0, 1, 4], [1, 0, 1], [4, 1, 0]]).decide([[1.0, 0.0, 1.0]])
        array([1])
    """

    costs: Any
    calibration: Calibration | None = None
    evidence: Evidence = NO_EVIDENCE
    decided_by: ClassVar[Mapping[str, int]] = {"offsets": 1, "costs": 2}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.costs.shape != (self.outputs, self.outputs):
            raise InvalidValueError(f"costs of {self.outputs} classes are a square, got shape {self.costs.shape}")

    def scores(self, logits: Floats) -> Floats:
        """Return minus the expected costs, ``(n, c)``."""
        return -np.asarray(self.probabilities(logits) @ self.costs)

    def describe(self, names: Sequence[Any] = ()) -> str:
        """Say that expected costs decide."""
        return "the class with the smallest expected cost, with an offset for each class"

    def before(self, calibration: Calibration) -> CostDecision:
        """Return the decision about logits that are not calibrated; the costs refer to probabilities."""
        return replace(self, calibration=calibration)


@dataclass(frozen=True)
class LabelDecision(Decision):
    """Each label is there from its own threshold on.

    Attributes:
        thresholds: One threshold of logits per label, ``(c,)``.
        intervals: The bootstrap intervals of the thresholds, ``(c, 2)``.
        calibration: The calibration of the logits, for ``probabilities``.
        evidence: How good the decision is.

    Raises:
        InvalidValueError: A number is NaN, or there are intervals of other labels than thresholds.

    Example:
        >>> LabelDecision([0.0, 2.0]).decide([[0.0, 1.9], [-0.1, 2.0]])
        array([[1, 0],
               [0, 1]])
    """

    thresholds: Any
    intervals: Any | None = None
    calibration: Calibration | None = None
    evidence: Evidence = NO_EVIDENCE
    task = "multilabel"
    decided_by: ClassVar[Mapping[str, int]] = {"thresholds": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intervals is not None:
            _set_numbers(self, "intervals", 2)
            if self.intervals.shape != (self.outputs, 2):
                raise InvalidValueError(f"intervals of {self.outputs} thresholds have shape {self.intervals.shape}")

    @in_their_kind
    def margins(self, logits: Floats) -> Floats:
        """Return the logits minus the thresholds, ``(n, c)``."""
        return np.asarray(logits - self.thresholds)

    def describe(self, names: Sequence[Any] = ()) -> str:
        """List the thresholds of the probability."""
        return f"one threshold per label: {_listed([f'{value:.4g}' for value in sigmoid(self.thresholds)])}"

    def before(self, calibration: Calibration) -> LabelDecision:
        """Return the decision about logits that are not calibrated."""
        thresholds, ends = calibration.invert(self.thresholds), self.intervals
        intervals = None if ends is None else calibration.invert(ends.T).T
        return replace(self, thresholds=thresholds, intervals=intervals, calibration=calibration)

    def attributes(self, place: NDArray[np.int64]) -> dict[str, Any]:
        """Return thresholds and intervals as probabilities."""
        intervals = None if self.intervals is None else sigmoid(self.intervals)
        return {"thresholds_": sigmoid(self.thresholds), "threshold_interval_": intervals}

    def as_threshold(self) -> PerLabel:
        """Return the thresholds as probabilities."""
        from metricfit.core.thresholds import PerLabel  # the other decisions do without it

        return PerLabel.from_logits(self.thresholds)


@dataclass(frozen=True)
class TopLabelsDecision(Decision):
    """Every row has the same number of labels: those with the largest slope times probability plus intercept.

    Attributes:
        slopes: One number per label, ``(c,)``.
        intercepts: One number per label, ``(c,)``.
        budget: The number of labels of each row.
        calibration: The calibration of the logits; None if they are calibrated already.
        evidence: How good the decision is.

    Raises:
        InvalidValueError: A number is NaN, there are intercepts of other labels than slopes, or too few labels.

    Example:
        >>> TopLabelsDecision([1.0, 1.0, 4.0], [0.0, 0.0, 0.0], budget=2).decide([[1.0, 0.0, -1.0], [0.0, 1.0, -9.0]])
        array([[1, 0, 1],
               [1, 1, 0]])
    """

    slopes: Any
    intercepts: Any
    budget: int
    calibration: Calibration | None = None
    evidence: Evidence = NO_EVIDENCE
    task = "multilabel"
    decided_by: ClassVar[Mapping[str, int]] = {"slopes": 1, "intercepts": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intercepts.shape != self.slopes.shape:
            raise InvalidValueError(f"{len(self.slopes)} labels have {len(self.intercepts)} intercepts")
        if not 0 <= self.budget <= self.outputs:
            raise InvalidValueError(f"the decision's budget is from 0 to {self.outputs} labels")

    @in_their_kind
    def margins(self, logits: Floats) -> Floats:
        """Return by how much each label is better than the best one that is left out, ``(n, c)``; 0 for ties."""
        gains = self._gains(logits)
        if self.budget == self.outputs:
            return np.ones_like(gains)
        return np.asarray(gains - np.sort(gains, axis=1)[:, -1 - self.budget, None])

    def _gains(self, logits: Floats) -> Floats:
        return np.asarray(self.slopes * self.probabilities(logits) + self.intercepts)

    def decide(self, logits: Array) -> Any:
        """Return 0 and 1, ``(n, c)``; of equal labels the first are there."""
        decided = largest(self._gains(to_numpy(logits, np.float64)), self.budget)
        return in_kind_of(decided.astype(np.int64), logits)

    def describe(self, names: Sequence[Any] = ()) -> str:
        """Name the number of labels."""
        return f"the {self.budget} best labels of each row"

    def before(self, calibration: Calibration) -> TopLabelsDecision:
        """Return the decision about logits that are not calibrated."""
        return replace(self, calibration=calibration)

    def attributes(self, place: NDArray[np.int64]) -> dict[str, Any]:
        """Return nothing: there are no thresholds."""
        return {}

    def as_threshold(self) -> float:
        """Refuse: there are no thresholds."""
        raise InvalidValueError("this decision has no thresholds, because every row has as many labels as the others")


def largest(gains: Floats, budget: int) -> NDArray[np.bool_]:
    """Return which entries of each row are among this many largest; of equal ones the first are."""
    place = np.argsort(np.argsort(-gains, axis=1, kind="stable"), axis=1)
    return np.asarray(place < budget)


#: The kinds of decisions by their names in files.
KINDS: dict[str, type[Any]] = {
    "threshold": ThresholdDecision,
    "row costs": RowCostDecision,
    "offsets": OffsetDecision,
    "costs": CostDecision,
    "labels": LabelDecision,
    "top labels": TopLabelsDecision,
}
Decision.kinds = KINDS


def to_probability(logit: float) -> float:
    """Convert a logit to a probability."""
    return float(sigmoid(np.float64(logit)))


def restore_decision(state: Any) -> Any:
    """Make a decision from what ``state`` returned, or refuse what is damaged.

    Args:
        state: The state, as JSON holds it.

    Returns:
        The decision.

    Raises:
        InvalidValueError: A part is missing, of another type, NaN, or of another shape; the message names it.

    Example:
        >>> decision = ThresholdDecision(0.5, evidence=Evidence(value=0.8))
        >>> restore_decision(decision.state()) == decision
        True
    """
    return read(Decision, state, "decision", Content())


def _set_numbers(decision: Any, name: str, axes: int) -> None:
    """Keep numbers of a decision as float64, and refuse NaN and other shapes."""
    numbers = to_numpy(getattr(decision, name), np.float64)
    if numbers.ndim != axes or not numbers.size:
        raise InvalidValueError(f"the decision's {name} must have {axes} axes, got shape {numbers.shape}")
    if np.isnan(numbers).any():
        raise InvalidValueError(f"the decision's {name} must not be NaN, got {numbers.tolist()}")
    object.__setattr__(decision, name, float(numbers) if axes == 0 else numbers)


def _probabilities(ends: Ends) -> Ends:
    return to_probability(ends[0]), to_probability(ends[1])


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:LISTED]) + (", ..." if len(texts) > LISTED else "")
