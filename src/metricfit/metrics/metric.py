"""The Metric object, the factories of metrics with parameters, and ``get_metric``."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec

import numpy as np

from metricfit.core.arrays import Array, is_array, one_number, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.numerics import Dual, where
from metricfit.errors import InvalidTypeError, InvalidValueError, quote, shorten
from metricfit.metrics import parsing, registry
from metricfit.metrics.metric_parameters import (
    Parameter,
    check_parameters,
    expand_parameter,
    first_paragraph,
    format_parameter,
)
from metricfit.metrics.parsing import WrittenFormula, in_brackets
from metricfit.metrics.requirements import Requirement

if TYPE_CHECKING:
    from metricfit.core.types import Average, ZeroDivision
    from metricfit.metrics.group_gap import GroupGap


P = ParamSpec("P")
#: What a user's formula raises on arrays if it calls functions of torch.
NOT_FOR_ARRAYS = (TypeError, AttributeError)
Formula = Callable[..., Array]
Bounds = tuple[float, float]


#: How metrics are called; what else ``__call__`` takes is for scikit-learn alone.
SIGNATURE = inspect.Signature([inspect.Parameter("counts", inspect.Parameter.POSITIONAL_OR_KEYWORD)])


class Metric:
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
    #: The name of the only class to measure, if it was named. A name alone has no number yet: an estimator knows which
    #: class has it.
    class_name: str | int | None = None

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
        self.__signature__ = SIGNATURE
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

    def __call__(self, counts: Counts, *scored: Any, **settings: Any) -> Array:
        """Compute the metric.

        Args:
            counts: Counts of shape ``(..., c)``.
            *scored: For scikit-learn alone, which calls ``scoring=metrics.mcc`` with an estimator, rows and labels.
            **settings: For scikit-learn alone: ``sample_weight``.

        Returns:
            One value per class, ``(..., c)``; 0 where the formula is 0/0. A metric of the whole confusion matrix
            gives one value for several exclusive classes, ``(...)``. Called as a scorer, it returns one number, where
            higher is better.

        Raises:
            InvalidTypeError: ``counts`` is something else, or a user's formula does not return an array.
            InvalidValueError: The number of classes does not fit the parameters or the class index.
        """
        if scored or settings:
            from metricfit.metrics.scoring import score_estimator

            return score_estimator(self, counts, *scored, **settings)
        return one_number(self._measure(counts))

    def _measure(self, counts: Counts) -> Array:
        """Compute the metric of counts."""
        if not isinstance(counts, Counts):
            raise InvalidTypeError(f"{self.name} is called on Counts, got {type(counts).__name__}; {self._remedy}")
        if self.whole_matrix and not counts.exclusive:  # each label has its own 2 x 2 matrix
            if isinstance(counts.tp, Dual):
                raise InvalidTypeError(f"{self.name} of several labels does not take dual numbers")
            return self._measure(replace(counts.map(lambda cell: cell[..., None]), exclusive=True))[..., 0]
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

    @property
    def _remedy(self) -> str:
        """What to write for labels, logits or scores instead of counts."""
        call = self.name if not self.parameters else f"get_metric({self.name!r})"
        start = f"metrics.{call}" if not self.parameters and not self.user_defined else call
        return (
            f"for labels write {start}.score(y, predicted), for logits metricfit.score(logits, y, {self.name!r}), "
            "and Counts are made by Counts.hard and Counts.from_labels"
        )

    def score(
        self,
        target: Any,
        predicted: Any,
        *,
        weight: Any = None,
        average: Average = "macro",
        pos_label: Any = None,
        zero_division: ZeroDivision = None,
    ) -> Any:
        """Compute the metric of predicted labels.

        Args:
            target: The true labels ``(n,)``: numbers, texts or booleans. Several labels per row are 0 and 1,
                ``(n, c)``.
            predicted: The predicted labels, of the same shape.
            weight: One weight per row.
            average: The average over several classes or labels; None for one value for each. Two classes have none.
            pos_label: Which of two classes is the positive one. It is 1 of 0 and 1 and of -1 and 1, and True.
            zero_division: What a class counts for where its metric is 0/0, as in ``metrics.averaged``.

        Returns:
            The value, a number; without an average an array with one number per class, in sorted order.

        Raises:
            InvalidValueError: The labels do not fit each other, or nothing says which class is the positive one.
            InvalidTypeError: The metric is not one of decisions on their own.

        Example:
            >>> from metricfit import metrics
            >>> metrics.recall.score([1, 1, 0, 1], [1, 0, 0, 1])
            0.6666666666666666
            >>> metrics.f1.score(["cat", "dog", "owl"], ["cat", "dog", "dog"])
            0.5555555555555555
        """
        from metricfit.metrics.scoring import score_labels

        return score_labels(self, target, predicted, weight, average, pos_label=pos_label, zero_division=zero_division)

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

    @property
    def of_one_class(self) -> bool:
        """Whether one class is measured, by its number or by its name."""
        return self.class_index is not None or self.class_name is not None

    @property
    def class_text(self) -> str:
        """The class as it is written in brackets."""
        return str(self.class_index) if self.class_name is None else repr(self.class_name)

    def __getitem__(self, index: int | str) -> Metric:
        named = isinstance(index, str) and bool(index)
        if not named and (isinstance(index, bool) or not isinstance(index, int) or index < 0):
            raise InvalidTypeError(
                f"{self.name}[k] takes a class number from 0 on, or the name of a class, got {quote(index)}"
            )
        if self.whole_matrix:
            raise InvalidTypeError(f"{self.name} is one number for the whole confusion matrix, not one per class")
        if self.of_one_class:
            raise InvalidTypeError(f"{self.name} is already the metric of one class")
        return self.of_class(None, index) if isinstance(index, str) else self.of_class(index)

    def of_class(self, index: int | None, name: str | int | None = None) -> Metric:
        """Copy the metric, subclasses included, for one class of samples or for all.

        Args:
            index: The number of the class; None for all classes, or for a class that is known by its name alone.
            name: What the name of the metric shows in place of the number: the name of the class, or the number of a
                label where the counts are of this label alone.

        Returns:
            The copy.

        Example:
            >>> from metricfit import metrics
            >>> metrics.recall.of_class(2, "gold")
            recall['gold']
        """
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, class_index=index, class_name=name)
        return copied

    def select_class(self, value: Array) -> Array:
        """Return the value of the class.

        Args:
            value: The values of all classes, ``(..., c)``.

        Returns:
            The value of this class, ``(..., 1)``.

        Raises:
            InvalidValueError: There is no such class, or its name has no number yet.
        """
        classes = value.shape[-1]
        if self.class_index is None:
            raise InvalidValueError(
                f"{self.name} names a class, and counts have class numbers: write [k] with k from 0 to {classes - 1}. "
                "Names are for subject_to of estimators, which know them"
            )
        if self.class_index >= classes:
            hint = "; a binary problem has one, its positive class: leave the index out" if classes == 1 else ""
            raise InvalidValueError(f"{self.name}: the counts have {classes} classes, 0 to {classes - 1}{hint}")
        return value[..., self.class_index : self.class_index + 1]

    def __ge__(self, bound: float) -> Requirement:
        return Requirement(self, ">=", bound)

    def __le__(self, bound: float) -> Requirement:
        return Requirement(self, "<=", bound)

    def __gt__(self, bound: float) -> Requirement:
        raise InvalidTypeError(f"write {self.name} >= {bound}: a requirement includes its bound")

    def __lt__(self, bound: float) -> Requirement:
        raise InvalidTypeError(f"write {self.name} <= {bound}: a requirement includes its bound")

    def equals(self, bound: float, *, within: float | None = None) -> Requirement:
        """Require that the metric equals a bound.

        Args:
            bound: The value that the metric should have.
            within: How far from it the metric may be where the requirement is checked; by default 0.01. Training moves
                towards the bound itself.

        Returns:
            The Requirement.

        Raises:
            InvalidTypeError: The bound or the tolerance is not a number.
            InvalidValueError: The metric cannot reach the bound, or the tolerance is negative.

        Example:
            >>> from metricfit import metrics
            >>> print(metrics.recall.equals(0.9))
            recall == 0.9
        """
        return Requirement(self, "==", bound, within)

    def gap(self, groups: int | Sequence[object]) -> GroupGap:
        """Make the metric that is the largest difference of this metric between two groups; lower is better.

        It is measured on counts per group, ``Counts.hard(..., group=..., groups=k)``. Where a function or loss takes
        ``group=`` (or ``groups=``), pass one group number per row there.

        Args:
            groups: The number of groups, or their names in the order of the group numbers.

        Returns:
            The metric.

        Raises:
            InvalidTypeError: ``groups`` is neither a number nor a list of names.
            InvalidValueError: There are fewer than two groups, or two of the same name.

        Example:
            >>> from metricfit import Counts, metrics
            >>> counts = Counts(tp=[[8.0], [6.0]], fp=[[0.0], [0.0]], fn=[[2.0], [4.0]], tn=[[9.0], [9.0]])
            >>> metrics.recall.gap(2)(counts)
            array([0.2])
            >>> print(metrics.recall.gap(["women", "men"]) <= 0.05)
            recall.gap(['women', 'men']) <= 0.05
        """
        from metricfit.metrics.group_gap import GroupGap

        return GroupGap(self, groups)

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
        metric = self._make(self._check_parameters(bound.arguments))
        if self.__doc__:
            metric.__doc__ = self.__doc__
        return metric

    def _make(self, parameters: dict[str, Any]) -> Metric:
        bounds = self.bounds(**parameters) if callable(self.bounds) else self.bounds
        return self.metric_class(self.name, self.formula, parameters=parameters, bounds=bounds, **self.settings)

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
    *,
    user_defined: bool,
    minimize: bool = False,
    bounds: Bounds | Callable[..., Bounds] = (-math.inf, math.inf),
    needs: Sequence[str] = (),
    whole_matrix: bool = False,
    factory: type[MetricFactory[...]] = MetricFactory,
) -> Metric | MetricFactory[...]:
    """Make a Metric from a function of Counts, or a factory if the function has further parameters.

    The arguments are as in ``metrics.metric``; ``factory`` is the class of the factory, which knows the metrics' class.
    """
    if not callable(formula):
        raise InvalidTypeError(f"a metric is made from a function of Counts, got {type(formula).__name__}")
    refuse_scikit_learn(formula)
    needed = frozenset((needs,) if isinstance(needs, str) else needs)
    if not needed <= {"positives", "negatives"}:
        raise InvalidValueError(f"needs is any of 'positives' and 'negatives', got {quote(needs)}")
    settings = {"minimize": minimize, "needs": needed, "whole_matrix": whole_matrix, "user_defined": user_defined}
    name = getattr(formula, "__name__", type(formula).__name__)
    if len(inspect.signature(formula).parameters) > 1:
        return factory(name, formula, bounds, **settings)
    if callable(bounds):
        raise InvalidTypeError(f"{name}: bounds can be a function only of the formula's parameters, and it has none")
    return factory.metric_class(name, formula, bounds=bounds, **settings)  # type: ignore[arg-type]


def refuse_scikit_learn(function: object) -> None:
    """Raise an error for a function or a scorer of ``sklearn.metrics``, which names the metric here."""
    name = registry.name_in_scikit_learn(function)
    if name is not None:
        ours = registry.suggestion(name)
        remedy = f"use {ours!r}" if ours else "use the name of a metric, as metrics.names() lists them"
        raise InvalidTypeError(f"{name} of scikit-learn is a function of labels, and no metric of Counts; {remedy}")


def get_metric(metric: str | Metric | Formula) -> Metric:
    """Get a metric by its name, or make one from a function of Counts.

    Text is parsed and never evaluated; parameters are literals.

    Args:
        metric: A Metric, a function of Counts, or a name such as ``"f1"``, ``"fbeta(beta=2)"`` or ``"recall[2]"``. Text
            may also be a formula over tp, fp, fn, tn and n: ``"2*tp/(2*tp + fp + fn)"``, ``"minimize(fp + 5*fn)"``.

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
    entry = make_metric(metric, user_defined=True)
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


def reduce_by_name(metric: Metric) -> tuple[object, ...] | None:
    """Return what ``__reduce__`` returns for a metric that is found again by its name; None if it is not."""
    if metric.of_one_class:
        return of_class, (metric.of_class(None), metric.class_index, metric.class_name)
    if metric.found_by_name:
        return get_metric, (metric.name,)
    if metric.parameters:
        return call_factory, (registry.find(metric.base_name), metric.parameters)
    return name_in_module(metric)


def name_in_module(entry: Metric | MetricFactory[...]) -> tuple[object, ...] | None:
    """Return how to find a metric under its formula's name in its formula's module; None if it is not there."""
    place = entry.formula.__module__, getattr(entry.formula, "__qualname__", "")
    return (find_in_module, place) if find_in_module(*place) == entry else None


def find_in_module(module: str, name: str) -> object:
    """Return what a module holds under a name."""
    return getattr(import_module(module), name, None)


def call_factory(factory: MetricFactory[...], parameters: Mapping[str, Parameter]) -> Metric:
    """Recreate a metric from its factory and its parameters."""
    return factory(**parameters)


def of_class(metric: Metric, index: int | None, name: str | int | None) -> Metric:
    """Recreate the metric of a class."""
    return metric.of_class(index, name)
