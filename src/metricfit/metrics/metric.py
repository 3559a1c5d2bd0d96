"""The Metric object, the factories of metrics with parameters, and ``get_metric``."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, ParamSpec

import numpy as np

from metricfit.core.arrays import Array, is_array, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.numerics import Dual, where
from metricfit.errors import InvalidTypeError, InvalidValueError, quote, shorten
from metricfit.metrics import parsing, registry
from metricfit.metrics.class_selection import ClassSelection
from metricfit.metrics.metric_parameters import (
    Parameter,
    check_parameters,
    expand_parameter,
    first_paragraph,
    format_parameter,
)
from metricfit.metrics.pickling import name_in_module, reduce_by_name
from metricfit.metrics.requirement_operators import RequirementOperators
from metricfit.metrics.written_formula import WrittenFormula, in_brackets

P = ParamSpec("P")
#: What a user's formula raises on arrays if it calls functions of torch.
NOT_FOR_ARRAYS = (TypeError, AttributeError)
Formula = Callable[..., Array]
Bounds = tuple[float, float]


class Metric(ClassSelection, RequirementOperators):
    """A formula over counts, with its direction and its bounds.

    Metrics compare equal by name and parameters. ``metric >= bound``, ``metric <= bound`` and ``metric.equals(bound)``
    make a Requirement, ``metric[k]`` and ``metric["name"]`` are the metric of one class alone, and
    ``metric.gap(groups)`` is the largest difference between groups. Use ``metrics.f1`` and the like, ``get_metric`` or
    ``@metric`` to get one.

    Args:
        name: The name, without parameters.
        formula: A function of Counts ``(..., c)`` and the parameters.
        parameters: Values of the parameters, each one number or one number per class.
        minimize: Whether lower is better.
        bounds: The smallest and the largest value.
        needs: Which of "positives" and "negatives" must be present for the value to be meaningful.
        whole_matrix: Whether the formula reduces over the classes itself.
        user_defined: Whether the formula was written by a user, and may give NaN.
        class_index: The only class to measure; None for all classes.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.f1(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.66666667])
        >>> metrics.f1.minimize, metrics.f1.bounds
        (False, (0.0, 1.0))
    """

    #: Whether it is measured on scores (``metrics.auroc``) instead of on counts of decisions.
    is_ranking: ClassVar[bool] = False
    #: Whether the counts of several exclusive classes must hold the whole confusion matrix.
    needs_matrix: bool = False
    #: Names of the columns of a table that hold its costs (``cost(fp=5, fn="amount")``).
    columns: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        formula: Formula,
        *,
        parameters: Mapping[str, Parameter] | None = None,
        minimize: bool = False,
        bounds: Bounds = (-math.inf, math.inf),
        needs: frozenset[str] = frozenset(),
        whole_matrix: bool = False,
        user_defined: bool = False,
        class_index: int | None = None,
    ) -> None:
        self.base_name = name
        self.formula = formula
        self.parameters = dict(parameters or {})
        self.minimize = minimize
        self.bounds = bounds
        self.needs = needs
        self.whole_matrix = whole_matrix
        self.user_defined = user_defined
        self.class_index = class_index
        if documentation := getattr(formula, "__doc__", None):
            self.__doc__ = documentation

    @property
    def name(self) -> str:
        """The name that ``get_metric`` takes, including the parameters."""
        arguments = ", ".join(f"{key}={format_parameter(value)}" for key, value in self.parameters.items())
        name = self.base_name + (f"({arguments})" if arguments else "")
        return f"{in_brackets(name)}[{self.class_text}]" if self.of_one_class else name

    @property
    def found_by_name(self) -> bool:
        """Whether ``get_metric(name)`` makes the same metric anywhere; False for functions of users."""
        return not self.user_defined or getattr(self.formula, "found_by_name", False)

    @property
    def summary(self) -> str:
        """The formula in words: the first paragraph of the documentation."""
        return first_paragraph(self.__doc__)

    def __call__(self, counts: Counts) -> Array:
        """Compute the metric.

        Args:
            counts: Counts of shape ``(..., c)``.

        Returns:
            One value per class, ``(..., c)``; 0 where the formula is 0/0. A metric of the whole confusion matrix
            gives one value for several exclusive classes, ``(...)``.

        Raises:
            InvalidTypeError: ``counts`` is something else, or a user's formula does not return a tensor.
            InvalidValueError: The number of classes does not fit the parameters or the class index.
        """
        if not isinstance(counts, Counts):
            raise InvalidTypeError(f"a metric is called on Counts, got {type(counts).__name__}; see Counts.hard")
        if self.whole_matrix and not counts.exclusive:  # each label has its own 2 x 2 matrix
            if isinstance(counts.tp, Dual):
                raise InvalidTypeError(f"{self.name} of several labels does not take dual numbers")
            return self(replace(counts.map(lambda cell: cell[..., None]), exclusive=True))[..., 0]
        parameters = {key: expand_parameter(self, key, value, counts.tp) for key, value in self.parameters.items()}
        if not self.user_defined:
            value = self.formula(counts, **parameters)
        elif isinstance(counts.tp, np.ndarray):
            value = of_arrays(
                lambda *cells: self._compute_safely(
                    Counts(*cells[:4], exclusive=counts.exclusive), dict(zip(parameters, cells[4:], strict=True))
                ),
                *counts,
                *parameters.values(),
            )
        else:
            value = self._compute_safely(counts, parameters)
        return self.select_class(value) if self.of_one_class else value

    def _compute_safely(self, counts: Counts, parameters: Mapping[str, float | Array]) -> Array:
        """Compute a user's formula, which may divide by 0: the value and the gradient are 0 where it gives NaN."""
        value = self.formula(counts, **parameters)
        if isinstance(value, Dual):
            return where(value.value != value.value, 0.0 * counts.tp, value)
        if not is_array(value):
            raise InvalidTypeError(f"the formula of {self.name} must return an array, got {type(value).__name__}")
        if value.shape not in (counts.tp.shape, counts.tp.shape[:-1] if self.whole_matrix else counts.tp.shape):
            raise InvalidValueError(
                f"the formula of {self.name} must give one value per class, shape {tuple(counts.tp.shape)}, got "
                f"{tuple(value.shape)}; a formula that reduces over the classes needs @metric(whole_matrix=True)"
            )
        undefined = value != value
        # Evaluated again with harmless counts in those places, because a gradient through NaN would be NaN.
        replaced = undefined if undefined.shape == counts.tp.shape else undefined[..., None]
        value = self.formula(counts.map(lambda cell: where(replaced, 1.0, cell)), **parameters)
        return where(undefined, 0.0, value)

    def _key(self) -> tuple[object, ...]:
        return self.name, self.formula if self.user_defined else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metric) and type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[object, ...]:
        if type(self) is not Metric:  # a subclass may compute something else than the metric of that name
            return super().__reduce__()
        return reduce_by_name(self) or super().__reduce__()


def of_arrays(function: Callable[..., Array], *arguments: Any) -> Array:
    """Call a user's function of arrays; one that calls functions of torch gets tensors instead."""
    with np.errstate(all="ignore"):
        try:
            return to_numpy(function(*arguments))
        except NOT_FOR_ARRAYS:
            torch = sys.modules.get("torch")
            if torch is None:
                raise
            tensors = (torch.as_tensor(value) if isinstance(value, np.ndarray) else value for value in arguments)
            return to_numpy(function(*tensors))


class MetricFactory(Generic[P]):
    """A formula with parameters. Call it with their values to get the Metric, as in ``fbeta(beta=2)``.

    ``metrics.fbeta``, ``metrics.tversky`` and ``metrics.cost`` are factories; ``@metric`` makes one from a function
    with parameters.

    Args:
        name: The name of the metrics.
        formula: A function of Counts and the parameters.
        bounds: The smallest and the largest value, or a function of the parameters that returns them.
        settings: The other arguments of Metric.

    Example:
        >>> from metricfit import metrics
        >>> metrics.fbeta
        fbeta(beta)
        >>> metrics.fbeta(beta=2)
        fbeta(beta=2)
    """

    metric_class: ClassVar[type[Metric]] = Metric

    def __init__(self, name: str, formula: Formula, bounds: Bounds | Callable[..., Bounds], **settings: Any) -> None:
        self.name = name
        self.formula = formula
        self.bounds = bounds
        self.settings = settings
        if documentation := getattr(formula, "__doc__", None):
            self.__doc__ = documentation
        parameters = list(inspect.signature(formula).parameters.values())[1:]
        self.__signature__ = inspect.Signature(parameters, return_annotation=Metric)

    @property
    def summary(self) -> str:
        """The formula in words: the first paragraph of the documentation."""
        return first_paragraph(self.__doc__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Metric:
        """Make the metric with these parameters.

        Returns:
            The Metric.

        Raises:
            InvalidTypeError: A parameter is missing, unknown, or neither a number nor a list of numbers.
            InvalidValueError: A parameter is out of range.
        """
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTypeError(f"{self!r}: {shorten(error)}") from None
        bound.apply_defaults()
        parameters = self._check_parameters(bound.arguments)
        bounds = self.bounds(**parameters) if callable(self.bounds) else self.bounds
        metric = self.metric_class(self.name, self.formula, parameters=parameters, bounds=bounds, **self.settings)
        if self.__doc__:
            metric.__doc__ = self.__doc__
        return metric

    def _check_parameters(self, values: Mapping[str, object]) -> dict[str, Any]:
        return check_parameters(self.name, values, user_defined=self.settings["user_defined"])

    def __reduce__(self) -> str | tuple[object, ...]:
        if not self.settings["user_defined"]:
            return registry.find, (self.name,)
        return name_in_module(self) or super().__reduce__()

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.__signature__.parameters)})"


def make_metric(
    formula: Formula,
    minimize: bool,
    bounds: Bounds | Callable[..., Bounds],
    needs: Sequence[str],
    whole_matrix: bool,
    *,
    user_defined: bool,
) -> Metric | MetricFactory[...]:
    """Make a Metric from a function of Counts, or a factory if the function has further parameters.

    The arguments are those of ``metrics.metric``.
    """
    if not callable(formula):
        raise InvalidTypeError(f"a metric is made from a function of Counts, got {type(formula).__name__}")
    needed = frozenset((needs,) if isinstance(needs, str) else needs)
    if not needed <= {"positives", "negatives"}:
        raise InvalidValueError(f"needs is any of 'positives' and 'negatives', got {quote(needs)}")
    settings: dict[str, Any] = {
        "minimize": minimize,
        "needs": needed,
        "whole_matrix": whole_matrix,
        "user_defined": user_defined,
    }
    name = getattr(formula, "__name__", type(formula).__name__)
    if len(inspect.signature(formula).parameters) > 1:
        return MetricFactory(name, formula, bounds, **settings)
    if callable(bounds):
        raise InvalidTypeError(f"{name}: bounds can be a function only of the formula's parameters, and it has none")
    return Metric(name, formula, bounds=bounds, **settings)


def get_metric(metric: str | Metric | Formula) -> Metric:
    """Get a metric by its name, or make one from a function of Counts.

    Text is parsed and never evaluated; parameters are literals.

    Args:
        metric: A name such as ``"f1"``, ``"fbeta(beta=2)"`` or ``"recall[2]"``, a formula over tp, fp, fn, tn and n
            (``"2*tp/(2*tp + fp + fn)"``, ``"minimize(fp + 5*fn)"``), a function of Counts, or a Metric.

    Returns:
        The Metric.

    Raises:
        InvalidValueError: There is no such metric, or a parameter or a part of a formula is not allowed.
        InvalidTypeError: ``metric`` is something else, or a parameter is missing.

    Example:
        >>> get_metric("fbeta(beta=2)")
        fbeta(beta=2)
        >>> get_metric("2*tp/(2*tp + fp + fn)")(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.66666667])
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        return find_metric(parsing.parse(metric))
    if isinstance(metric, MetricFactory):
        raise InvalidTypeError(f"{metric!r} needs its parameters, as in {metric.name}(...)")
    if getattr(metric, "is_ranking", False):
        raise InvalidTypeError(registry.ranking_message(metric.name, metric.name))  # type: ignore[attr-defined]
    if not callable(metric):
        raise InvalidTypeError(f"a metric is a Metric, its name or a function of Counts, got {quote(metric)}")
    entry = make_metric(metric, False, (-math.inf, math.inf), (), False, user_defined=True)
    if isinstance(entry, MetricFactory):
        raise InvalidTypeError(f"{entry!r} takes parameters besides Counts; fix them with a lambda, or use @metric")
    return entry


def find_metric(parsed: parsing.ParsedMetric) -> Metric:
    """Look up a metric that was read from text.

    Raises:
        InvalidValueError: There is no such metric, it takes no parameters, or a parameter is out of range.
        InvalidTypeError: A parameter is missing, unknown, or not a number.
    """
    entry = registry.find(parsed.name) if parsed.formula is None else parsed.formula
    if isinstance(entry, WrittenFormula):
        metric = Metric(entry.name, entry, minimize=entry.minimize, needs=entry.needs, user_defined=True)
    elif isinstance(entry, MetricFactory):
        metric = entry(*parsed.args, **parsed.kwargs)
    elif parsed.args or parsed.kwargs:
        raise InvalidValueError(f"{parsed.name} takes no parameters; write {parsed.name!r} alone")
    else:
        metric = entry
    assert isinstance(metric, Metric)
    metric = metric if parsed.index is None else metric[parsed.index]
    return metric if parsed.groups is None else metric.gap(parsed.groups)
