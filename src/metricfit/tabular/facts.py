"""What there is to say about a fitted model, computed once: commands, JSON, pages and model cards render it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from metricfit.decide.bounds import format_percent
from metricfit.decide.decision import GUARANTEED
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import get_metric
from metricfit.tabular.ensemble import ModelRow
from metricfit.tabular.row_folds import is_forward

Ends = tuple[float, float]
#: What is known about a requirement: it holds on new rows, probably does, was met on the held-out rows alone, or not.
State = Literal["guaranteed", "certified", "met", "unmet"]

#: A class with fewer held-out rows is reported.
FEW_ROWS = 100
#: Maximum number of classes that one sentence lists.
LISTED = 20
SCOPE = (
    "The values are for rows of the same kind as those of training. Rows of another time, place or source were not "
    "checked: compare values with metricfit evaluate on labelled rows, and the class balance with "
    'rethreshold(prevalence="estimate", X=new_rows).'
)

#: What a confidence is about if rows are in groups: requirements are then tested on one row of each group.
ROW_OF_A_GROUP = "a row drawn at random from a new group"


@dataclass(frozen=True)
class RequirementFact:
    """What is known about one requirement.

    Attributes:
        text: The requirement, such as "recall >= 0.9".
        value: Its value on the held-out rows.
        met: Whether that meets the bound.
        reachable: The best value that any threshold reaches.
        state: "guaranteed" on new rows, "certified" on cross-validated scores, "met" on held-out rows, or "unmet".
        description: The state in a few words, with the value.
    """

    text: str
    value: float
    met: bool
    reachable: float
    state: State
    description: str


@dataclass(frozen=True)
class ClassFact:
    """One class or label.

    Attributes:
        name: Its label; of several labels, the number of its column.
        rows: The number of its held-out rows.
        share: Its share of the held-out rows.
    """

    name: Any
    rows: int
    share: float


@dataclass(frozen=True)
class ModelFacts:
    """What there is to say about a fitted MetricClassifier or TunedDecisionClassifier.

    Attributes:
        kind: The name of the model's class.
        task: "binary", "multiclass" or "multilabel".
        metric: The name of the metric.
        label: The name of the metric, with its average if there is one.
        average: The average over several classes or labels; None for metrics without one.
        minimize: Whether lower values are better.
        value: The metric to expect on new rows.
        value_interval: Its 95 % interval.
        held_out_value: The metric on the held-out rows. It differs from ``value`` if their labels chose the decision.
        decision: How the decision is made, in words.
        threshold: The threshold of two classes; None for other decisions.
        threshold_interval: Its 95 % interval.
        refer_region: The probabilities that are referred to a person: from the first on and below the second.
        referred_share: The share of the held-out rows in that region.
        requirements: What is known about each requirement.
        requirements_met: Whether all are met, or with a confidence certified.
        not_reachable: What is reachable, if they are not met.
        confidence: The probability for which they are certified; None if they are not.
        certificate: What that says about new rows.
        out_of_fold: Whether new rows are scored by other models than the held-out rows.
        classes: The classes or labels in the order of their numbers; of two, the second is the positive one.
        positive: The positive class of two; None for others.
        prevalence: The class balance that the model decides for, if it is not the one of training.
        rows: The number of held-out rows on which the decision was chosen; each row counts once.
        total: The number of rows of the table that ``fit`` got; None for models that were loaded.
        apart: Whether no model was trained on these rows; otherwise each was held out by some fold.
        groups: The number of groups of these rows; None if there were no groups.
        columns: The number of columns; None if only the estimator knows it.
        column_names: Their names, if they have some.
        column_kinds: The number of columns of each kind, for a MetricClassifier.
        families: The families of a MetricClassifier: their weights, values and seconds, and why they were left out.
        estimator: The estimator of a TunedDecisionClassifier, in words.
        limits: What the values do not cover, one or a few sentences each.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> facts = model_facts(MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1))
        >>> facts.kind, facts.label, facts.positive, [each.rows for each in facts.classes]
        ('MetricClassifier', 'f1', True, [168, 32])
    """

    kind: str
    task: Literal["binary", "multiclass", "multilabel"]
    metric: str
    label: str
    average: str | None
    minimize: bool
    value: float
    value_interval: Ends | None
    held_out_value: float
    decision: str
    threshold: float | None
    threshold_interval: Ends | None
    refer_region: Ends | None
    referred_share: float
    requirements: tuple[RequirementFact, ...]
    requirements_met: bool
    not_reachable: str | None
    confidence: float | None
    certificate: str | None
    out_of_fold: bool
    classes: tuple[ClassFact, ...]
    positive: Any
    prevalence: float | Mapping[Any, float] | None
    rows: int
    total: int | None
    apart: bool
    groups: int | None
    columns: int | None
    column_names: tuple[str, ...]
    column_kinds: Mapping[str, int]
    families: tuple[ModelRow, ...]
    estimator: str | None
    limits: tuple[str, ...]

    @property
    def in_groups(self) -> bool:
        """Whether some of these rows are in one group."""
        return self.groups is not None and self.groups < self.rows

    @property
    def basis(self) -> str:
        """What the estimate of the metric on new rows is made from."""
        if self.requirements:
            return "the value on held-out rows, on which the decision was chosen"
        if self.value == self.held_out_value:
            return "the value on held-out rows"
        change = f"{'plus' if self.minimize else 'minus'} {abs(self.held_out_value - self.value):.3f}"
        return f"{self.held_out_value:.3f} on held-out rows, {change} because their labels chose the decision"

    @property
    def chosen_on_labels(self) -> bool:
        """Whether the labels of the held-out rows chose the decision, so that the value there is slightly too good."""
        return bool(self.requirements) or self.value != self.held_out_value

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values, as JSON holds them."""
        return asdict(self)


def model_facts(model: Any) -> ModelFacts:
    """Collect what there is to say about a fitted model.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.

    Returns:
        The facts.
    """
    metric, evidence, held_out = get_metric(model.metric), model.decision_.evidence, model.held_out_
    several = len(model.classes_) > 2 and not metric.whole_matrix
    classes, places = _classes(model), getattr(model, "_places", None)
    rows = len(held_out.y) if places is None else len(np.unique(places.rows))
    groups = None if held_out.groups is None else len(np.unique(held_out.groups))
    in_groups = groups is not None and groups < rows
    table = [
        column for column in getattr(getattr(model, "encoder_", None), "columns", None) or [] if column is not None
    ]
    kinds = [column.kind for column in table]
    one_threshold = model.decision_.task == "binary"
    return ModelFacts(
        kind=type(model).__name__,
        task=model.decision_.task,
        metric=metric.name,
        label=f"{model.average} {metric.name}" if several else metric.name,
        average=model.average if several else None,
        minimize=metric.minimize,
        value=model.value_,
        value_interval=model.value_interval_,
        held_out_value=evidence.value,
        decision=model.decision_.describe([each.name for each in classes]),
        threshold=model.threshold_,
        threshold_interval=model.threshold_interval_ if one_threshold else None,
        refer_region=model.refer_region_,
        referred_share=model.referred_share_,
        requirements=tuple(
            _requirement(model, text, result, in_groups) for text, result in model.requirements_.items()
        ),
        requirements_met=model.requirements_met_,
        not_reachable=evidence.not_reachable,
        confidence=model.confidence_,
        certificate=model.certificate_,
        out_of_fold=evidence.out_of_fold,
        classes=classes,
        positive=model.pos_label_,
        prevalence=model.prevalence_ if model.shift_.any() else None,
        rows=rows,
        total=None if places is None else places.total,
        apart=not model._decides_out_of_fold(),
        groups=groups,
        columns=getattr(model, "n_features_in_", None),
        column_names=tuple(map(str, getattr(model, "feature_names_in_", ()))),
        column_kinds={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        families=tuple(getattr(model, "models_", ())),
        estimator=_estimator(model),
        limits=tuple(_limits(model, classes, in_groups)),
    )


def _classes(model: Any) -> tuple[ClassFact, ...]:
    """Return the classes in the order of their numbers, or the labels, with their held-out rows."""
    y, names = np.asarray(model.held_out_.y), model.classes_[model._order].tolist()
    if y.ndim == 2:
        counts, shares = y.sum(0), np.asarray(model.held_out_.shares)
    else:
        counts = np.bincount(y, minlength=len(names))
        shares = counts / counts.sum()
    parts = zip(names, counts.tolist(), shares.tolist(), strict=True)
    return tuple(ClassFact(name, int(rows), share) for name, rows, share in parts)


def _requirement(model: Any, text: str, result: RequirementValue, in_groups: bool) -> RequirementFact:
    on_rows = f"{result.value:.4g} on held-out rows"
    state: State
    if model.confidence_ is not None:
        state = "guaranteed" if model.certificate_ == GUARANTEED else "certified"
        about = f" for {ROW_OF_A_GROUP}" if in_groups else ""
        words = f"{model.certificate_} at {format_percent(model.confidence_)} confidence{about} ({on_rows})"
    elif not result.met:
        state, words = "unmet", f"NOT {'met' if model.confidence is None else 'certified'} ({on_rows})"
    else:
        state, words = "met", f"met on held-out rows only ({result.value:.4g})"
    return RequirementFact(text, result.value, result.met, result.reachable, state, words)


def _estimator(model: Any) -> str | None:
    """Name the estimator of a TunedDecisionClassifier, and say how it was fitted."""
    if not hasattr(model, "estimators_"):
        return None
    folds = len(model.estimators_)
    return f"{type(model.estimator).__name__}, {f'fitted on {folds} folds' if folds else 'fitted before'}"


def _limits(model: Any, classes: tuple[ClassFact, ...], in_groups: bool) -> list[str]:
    """Say what the values of a model do not cover."""
    limits, evidence = [], model.decision_.evidence
    few = sorted((each for each in classes if each.rows < FEW_ROWS), key=lambda each: each.rows)
    if few and model.decision_.task != "multilabel":
        listed = ", ".join(f"{each.name} has {each.rows}" for each in few[:LISTED])
        limits.append(f"Few rows: {listed}. Values that depend on these rows are uncertain.")
    if model.requirements_ and model.confidence_ is None:
        limits.append("The requirements were checked on held-out rows, and nothing is guaranteed on new rows.")
    elif model.confidence_ is not None:
        limits += _limits_of_confidence(evidence.out_of_fold, in_groups)
    if not model.requirements_met_:
        limits.append(f"The requirements are not met: {evidence.not_reachable}.")
    limits.append(SCOPE)
    if not is_forward(getattr(model, "cv", None)):
        limits.append("The rows were not split by time. If new rows are later ones, the values can be worse.")
    if model.held_out_.groups is None:
        limits.append(
            "No groups were given: rows of one person or thing may be both in training and among the held-out rows, "
            "and the values of groups were not compared."
        )
    limits.append(
        "What the columns mean, how the labels came about, and what wrong decisions do to people were not checked."
    )
    return limits


def _limits_of_confidence(out_of_fold: bool, in_groups: bool) -> list[str]:
    """Say what a confidence does not cover."""
    limits = []
    if out_of_fold:
        limits.append(
            "The requirements were certified on cross-validated scores. New rows are scored by other models, so the "
            "confidence is approximate. Rows that are kept apart (calibration=0.3) make it exact."
        )
    if in_groups:
        limits.append(
            f"The requirements were tested on one row of each group, so the confidence is about {ROW_OF_A_GROUP}. "
            "Large groups do not count more than small ones."
        )
    return limits
