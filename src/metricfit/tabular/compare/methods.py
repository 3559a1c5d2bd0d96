"""The methods that are compared, and decisions that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError, quote
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.families import DEFAULT as DEFAULT_FAMILIES
from metricfit.tabular.families.choice import default_families
from metricfit.tabular.families.family import Floats, Integers
from metricfit.tabular.families.network import Network

#: The baselines by name, and what each of them does.
BASELINES = {
    "all positive": "calling every row positive",
    "none positive": "calling no row positive",
    "largest class": "always deciding for the largest class",
    "at random": "deciding at random, by the shares of the classes",
}


def baseline_shares(train_y: Integers, classes: int) -> dict[str, Floats]:
    """Return with which probability each baseline decides every row for each class.

    "at random" decides for each class with its share among the training rows.

    Args:
        train_y: Class numbers of the training rows.
        classes: The number of classes; of two, 1 is the positive one.

    Returns:
        The probability of each class, by the name of the baseline.

    Example:
        >>> baseline_shares(np.array([0, 0, 0, 1]), 2)["at random"]
        array([0.75, 0.25])
    """
    shares = np.bincount(train_y, minlength=classes) / len(train_y)
    if classes > 2:
        return {"largest class": np.eye(classes)[int(shares.argmax())], "at random": shares}
    return {"all positive": np.array([0.0, 1.0]), "none positive": np.array([1.0, 0.0]), "at random": shares}


def expected_counts(y: Integers, shares: Floats) -> Counts:
    """Return the expected counts if every row is decided for each class with this probability.

    They do not depend on a seed.

    Args:
        y: Class numbers.
        shares: The probability of each class; for two classes, the second is the positive one.

    Returns:
        Counts of the positive class of two, or of every class.

    Example:
        >>> expected_counts(np.array([0, 0, 1, 1]), np.array([0.75, 0.25])).tp
        array([0.5])
    """
    matrix = np.outer(np.bincount(y, minlength=len(shares)), shares)
    if len(shares) == 2:
        (tn, fp), (fn, tp) = matrix.tolist()
        return Counts(tp, fp, fn, tn)
    return ConfusionMatrix(matrix)


DEFAULT = "metricfit"
#: What one would use without this library: the other methods are compared with its own ``predict``.
REFERENCE = "LightGBM as it comes"


@dataclass(frozen=True)
class Method:
    """A way to train a classifier; its decision is tuned for the metric.

    Attributes:
        name: Name in tables, in verdicts and of ``metricfit fit --method``.
        description: What is trained.
        complexity: Rank from simple to complex, by what has to be understood and kept running: a linear model, one kind
            of trees or kernels, networks with the usual loss, with other losses, several kinds of models together.
        models: The parameter ``models`` of MetricClassifier.
        class_weight: The parameter ``class_weight`` of MetricClassifier.
        untuned: Name of a second row, the same networks without a tuned decision; None for no such row.
    """

    name: str
    description: str
    complexity: int
    models: tuple[str | Network, ...]
    class_weight: str | None = None
    untuned: str | None = None

    @property
    def is_network(self) -> bool:
        """Whether it trains networks, which takes minutes and needs torch."""
        return any(isinstance(model, Network) for model in self.models)

    def classifier(self, metric: Any, **parameters: Any) -> MetricClassifier:
        """Return the method as an unfitted classifier.

        Args:
            metric: The metric that it is trained for.
            parameters: Other parameters of MetricClassifier.

        Returns:
            The classifier.
        """
        models = "auto" if self.name == DEFAULT else list(self.models)
        return MetricClassifier(metric, models=models, class_weight=self.class_weight, **parameters)


METHODS = (
    Method(DEFAULT, "the default of MetricClassifier: several families, weighted for the metric", 7, DEFAULT_FAMILIES),
    Method("logistic regression", "logistic regression, its regularisation chosen by cross-validation", 2, ("linear",)),
    Method(
        "boosted trees",
        "LightGBM with its usual 31 leaves per tree and a learning rate of 0.05, stopped early on held-out rows",
        3,
        ("boosting",),
    ),
    Method(
        "small boosted trees",
        "LightGBM with 15 leaves per tree, each grown on random parts of the rows and columns",
        3,
        ("boosting_small",),
    ),
    Method(
        "boosted trees on the metric",
        "the small trees, trained on the cross-entropy plus the loss of the metric",
        4,
        ("boosting_metric",),
    ),
    Method("extra trees", "scikit-learn's ExtraTreesClassifier", 3, ("extra_trees",)),
    Method("support vectors", "support vectors with an RBF kernel, for up to about 10,000 rows", 3, ("kernel",)),
    Method(
        "network (cross-entropy)",
        "networks trained on the cross-entropy",
        5,
        (Network(recipe="bce"),),
        untuned="network (cross-entropy, untuned)",
    ),
    Method(
        "network (weighted cross-entropy)",
        "networks trained on the cross-entropy, with equal weights of the classes",
        6,
        (Network(recipe="bce"),),
        class_weight="balanced",
    ),
    Method("network (focal loss)", "networks trained on the focal loss", 6, (Network(recipe="focal"),)),
    Method(
        "network (metric loss)",
        "networks trained on the cross-entropy first, and then on the loss of the metric",
        6,
        (Network(recipe="two_stage"),),
    ),
    Method(
        "network (mixed loss)",
        "networks trained on the cross-entropy plus the loss of the metric",
        6,
        (Network(recipe="mix"),),
    ),
    Method(
        "network (under the requirements)",
        "networks trained for the metric under the requirements",
        8,
        (Network(recipe="constrained"),),
    ),
)
FOR_TWO_CLASSES = {"network (focal loss)"}
FOR_REQUIREMENTS = {"network (under the requirements)"}
#: Their training needs a metric of counts, and not costs in columns.
FOR_COUNTS = {"boosted trees on the metric", "network (metric loss)", "network (mixed loss)"}
#: Rows that show what tuning the decision is worth. They are not recommended, because tuning costs nothing.
UNTUNED = {method.untuned for method in METHODS if method.untuned is not None}
#: Rows of labels that were not chosen for the metric.
PLAIN = {REFERENCE, *UNTUNED, *BASELINES}
#: The rank of the user's own models, which are there already; with tuned decisions one more.
YOURS = 0
COMPLEXITY = {REFERENCE: 3} | {method.name: method.complexity for method in METHODS}


def methods(*, classes: int = 2, constrained: bool = False, row_costs: bool = False) -> list[Method]:
    """Return the methods for this number of classes; training under requirements is one only if there are any.

    With costs for each row, methods that are trained for a metric of counts are left out.
    """
    without = (FOR_TWO_CLASSES if classes > 2 else set()) | (set() if constrained else FOR_REQUIREMENTS)
    without |= FOR_COUNTS if row_costs else set()
    return [method for method in METHODS if method.name not in without]


def choose_methods(
    names: Sequence[str] | None,
    *,
    networks: bool = False,
    classes: int = 2,
    constrained: bool = False,
    row_costs: bool = False,
    table: Any = None,
) -> list[Method]:
    """Return the methods with these names, or those that take seconds; with ``networks``, the networks too.

    The default has the families for this table.

    Raises:
        InvalidValueError: There is no such method, or it cannot be used with costs for each row.
    """
    known = methods(classes=classes, constrained=constrained, row_costs=row_costs)
    for name in names or ():
        if row_costs and name in FOR_COUNTS:
            raise InvalidValueError(
                f"{quote(name)} is trained for a metric of counts, which have no costs for each row: leave it out"
            )
        find_method(name, known)
    return [
        replace(method, models=default_families(table)) if method.name == DEFAULT else method
        for method in known
        if (networks if method.is_network else names is None) or (names is not None and method.name in names)
    ]


def find_method(name: str, known: Sequence[Method] | None = None) -> Method:
    """Return the method with this name.

    Raises:
        InvalidValueError: There is no such method.

    Example:
        >>> find_method("support vectors").classifier("f1").models
        ['kernel']
    """
    known = METHODS if known is None else known
    for method in known:
        if name == method.untuned:
            raise InvalidValueError(f"{quote(name)} is only shown for comparison; use {quote(method.name)}")
        if name == method.name:
            return method
    listed = ", ".join(quote(method.name) for method in known)
    raise InvalidValueError(f"there is no method {quote(name)}; the methods are {listed}")
