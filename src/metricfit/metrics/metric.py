"""The Metric object: a named formula over counts, with its direction and bounds."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, overload

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.errors import InvalidTypeError, InvalidValueError, quote, shorten
from metricfit.metrics import parsing as registry
from metricfit.metrics.pickling import call_factory, defined_where, name_in_module
from metricfit.metrics.requirements import Requirement, as_float, literal

Formula = Callable[..., Tensor]
Bounds = tuple[float, float]
Parameter = float | tuple[float, ...]

#: The largest parameter of a metric of this library: its products with counts must be finite in float32.
LARGEST_PARAMETER = 1e20


class Metric:
    """A formula over counts. Called on Counts ``(..., c)`` it gives a value per class, ``(..., c)``.

    Metrics compare equal by name and parameters. ``metric >= bound`` and ``metric <= bound`` make a Requirement;
    ``metric[k]`` is the metric of class k alone.

    >>> from metricfit import Counts, metrics
    >>> metrics.f1(Counts(tp=3, fp=1, fn=2, tn=4))
    tensor([0.6667], dtype=torch.float64)
    """

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
        own: bool = False,
        class_index: int | None = None,
    ) -> None:
        self.base_name = name
        self.formula = formula
        self.parameters = dict(parameters or {})
        self.minimize = minimize
        self.bounds = bounds
        self.needs = needs
        self.whole_matrix = whole_matrix
        self.own = own
        self.class_index = class_index

    @property
    def name(self) -> str:
        """The name that ``get_metric`` takes, parameters included."""
        inside = ", ".join(f"{key}={_literal(value)}" for key, value in self.parameters.items())
        index = "" if self.class_index is None else f"[{self.class_index}]"
        return self.base_name + (f"({inside})" if inside else "") + index

    def __call__(self, counts: Counts) -> Tensor:
        """The value per class; 0 where the formula is 0/0."""
        if not isinstance(counts, Counts):
            raise InvalidTypeError(f"a metric is called on Counts, got {type(counts).__name__}; see Counts.hard")
        if self.whole_matrix and not counts.exclusive:  # each column is a matrix of its own
            return self(replace(counts.map(lambda given: given.unsqueeze(-1)), exclusive=True)).squeeze(-1)
        parameters = {key: self._parameter(key, value, counts) for key, value in self.parameters.items()}
        value = self._finite(counts, parameters) if self.own else self.formula(counts, **parameters)
        return value if self.class_index is None else self._of_class(value)

    def _parameter(self, key: str, value: Parameter, counts: Counts) -> float | Tensor:
        if not isinstance(value, tuple):
            return value
        classes = counts.tp.shape[-1]
        if len(value) != classes:
            raise InvalidValueError(f"{self.name} has {len(value)} values of {key}, the counts have {classes} classes")
        largest = torch.finfo(counts.tp.dtype).max if counts.tp.is_floating_point() else math.inf
        of_class = [torch.full_like(counts.tp[..., at], min(each, largest)) for at, each in enumerate(value)]
        return torch.stack(of_class, -1)  # made where the counts are: a copy to a GPU would be waited for

    def _finite(self, counts: Counts, parameters: Mapping[str, float | Tensor]) -> Tensor:
        """A user's formula, which may divide as it likes: where it gives NaN the value is 0, and so is the gradient."""
        value = self.formula(counts, **parameters)
        if not isinstance(value, Tensor):
            raise InvalidTypeError(f"the formula of {self.name} must return a tensor, got {type(value).__name__}")
        if value.shape not in (counts.tp.shape, counts.tp.shape[:-1] if self.whole_matrix else counts.tp.shape):
            raise InvalidValueError(
                f"the formula of {self.name} must give one value a class, shape {tuple(counts.tp.shape)}, got "
                f"{tuple(value.shape)}; a formula that reduces over the classes needs @metric(whole_matrix=True)"
            )
        undefined = value.isnan()
        # Evaluated again at harmless counts there, for a gradient through the NaN would be NaN.
        there = undefined if undefined.shape == counts.tp.shape else undefined.unsqueeze(-1)
        value = self.formula(counts.map(lambda given: torch.where(there, 1.0, given)), **parameters)
        return torch.where(undefined, 0.0, value)

    def _of_class(self, value: Tensor) -> Tensor:
        assert self.class_index is not None
        classes = value.shape[-1]
        if self.class_index >= classes:
            hint = "; a binary problem has one, its positive class: leave the index out" if classes == 1 else ""
            raise InvalidValueError(f"{self.name}: the counts have {classes} classes, 0 to {classes - 1}{hint}")
        return value[..., self.class_index : self.class_index + 1]

    def __getitem__(self, index: int) -> Metric:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise InvalidTypeError(f"{self.name}[k] takes a class number from 0 on, got {quote(index)}")
        if self.whole_matrix:
            raise InvalidTypeError(f"{self.name} is one number for the whole confusion matrix, not one per class")
        if self.class_index is not None:
            raise InvalidTypeError(f"{self.name} is already of one class")
        return self._of_index(index)

    def _of_index(self, class_index: int | None) -> Metric:
        """Return the same metric, of the same class of metrics, for one class of samples or for all."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, class_index=class_index)
        return made

    def __ge__(self, bound: float) -> Requirement:
        return Requirement(self, ">=", bound)

    def __le__(self, bound: float) -> Requirement:
        return Requirement(self, "<=", bound)

    def __gt__(self, bound: float) -> Requirement:
        raise InvalidTypeError(f"write {self.name} >= {bound}: a requirement includes its bound")

    def __lt__(self, bound: float) -> Requirement:
        raise InvalidTypeError(f"write {self.name} <= {bound}: a requirement includes its bound")

    def _key(self) -> tuple[object, ...]:
        return self.name, self.formula if self.own else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metric) and type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[object, ...]:
        if type(self) is not Metric:  # what a subclass computes cannot be found by name
            return super().__reduce__()
        if not self.own:
            return get_metric, (self.name,)
        if self.class_index is not None:
            whole = self._of_index(None)
            return operator.getitem, (defined_where(whole) or whole, self.class_index)
        if self.parameters:
            return call_factory, (registry.find(self.base_name), self.parameters)
        return name_in_module(self) or super().__reduce__()


class MetricFactory:
    """A formula with parameters: call it with them to get the Metric, as in ``fbeta(beta=2)``."""

    def __init__(self, name: str, formula: Formula, bounds: Bounds | Callable[..., Bounds], **settings: Any) -> None:
        self.name = name
        self.formula = formula
        self.bounds = bounds
        self.settings = settings
        self.__doc__ = formula.__doc__
        self._signature = inspect.Signature(list(inspect.signature(formula).parameters.values())[1:])

    def __call__(self, *args: float | Sequence[float], **kwargs: float | Sequence[float]) -> Metric:
        """The metric with these parameters."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTypeError(f"{self!r}: {shorten(error)}") from None
        bound.apply_defaults()
        parameters = {key: self._checked(key, value) for key, value in bound.arguments.items()}
        bounds = self.bounds(**parameters) if callable(self.bounds) else self.bounds
        return Metric(self.name, self.formula, parameters=parameters, bounds=bounds, **self.settings)

    def _checked(self, key: str, value: object) -> Parameter:
        if isinstance(value, (list, tuple)):
            if not value:
                raise InvalidValueError(f"{self.name}: {key} has no values")
            return tuple(self._number(key, one) for one in value)
        return self._number(key, value)

    def _number(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidTypeError(f"{self.name}: {key} must be a number or a list of them, got {quote(value)}")
        number = as_float(value, f"{self.name}: {key}")
        own = self.settings["own"]
        largest = math.inf if self.name == "fbeta" else LARGEST_PARAMETER  # fbeta(beta=inf) is recall
        if math.isfinite(number) if own else 0 <= number <= largest:
            return number
        wanted = "finite" if own else "at least 0" + (f" and at most {largest:g}" if largest < math.inf else "")
        raise InvalidValueError(f"{self.name}: {key} must be {wanted}, got {value}")

    def __reduce__(self) -> str | tuple[object, ...]:
        return (
            (registry.find, (self.name,)) if not self.settings["own"] else name_in_module(self) or super().__reduce__()
        )

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self._signature.parameters)})"


@overload
def metric(formula: Formula) -> Any: ...
@overload
def metric(
    *,
    minimize: bool = ...,
    bounds: Bounds | Callable[..., Bounds] = ...,
    needs: Sequence[str] = ...,
    whole_matrix: bool = ...,
) -> Callable[[Formula], Any]: ...
def metric(
    formula: Formula | None = None,
    *,
    minimize: bool = False,
    bounds: Bounds | Callable[..., Bounds] = (-math.inf, math.inf),
    needs: Sequence[str] = (),
    whole_matrix: bool = False,
) -> Any:
    """Make a Metric of a function of Counts, known to ``get_metric`` under the function's name.

    A function with further parameters makes a factory. The formula may divide as it likes: where it gives 0/0 the
    value and the gradient are 0. Under a square root use ``metrics.root``, whose gradient at 0 is finite.

    ``minimize`` says that lower is better; ``bounds`` the range of values; ``needs`` which of "positives" and
    "negatives" must be there for the value to mean anything; ``whole_matrix`` that the formula reduces over the classes
    itself.

    >>> @metric
    ... def lift(c):
    ...     return c.tp * c.n / (c.predicted * c.positives)
    >>> lift(Counts(tp=3, fp=1, fn=2, tn=4))
    tensor([1.5000], dtype=torch.float64)
    """

    def build(formula: Formula) -> Metric | MetricFactory:
        made = _made(formula, minimize, bounds, needs, whole_matrix, own=True)
        name = made.base_name if isinstance(made, Metric) else made.name
        if name.isidentifier():  # a lambda has no name to be found by
            registry.add_own(name, made)
        return made

    return build if formula is None else build(formula)


def builtin(
    *,
    minimize: bool = False,
    bounds: Bounds | Callable[..., Bounds] = (0.0, 1.0),
    needs: Sequence[str] = (),
    whole_matrix: bool = False,
    aliases: Sequence[str] = (),
) -> Callable[[Formula], Any]:
    """``metric`` for the formulas of this library, which guard their own divisions."""

    def build(formula: Formula) -> Metric | MetricFactory:
        made = _made(formula, minimize, bounds, needs, whole_matrix, own=False)
        registry.add_builtin(formula.__name__, made, aliases)
        return made

    return build


def _made(
    formula: Formula,
    minimize: bool,
    bounds: Bounds | Callable[..., Bounds],
    needs: Sequence[str],
    whole_matrix: bool,
    *,
    own: bool,
) -> Metric | MetricFactory:
    if not callable(formula):
        raise InvalidTypeError(f"a metric is made of a function of Counts, got {type(formula).__name__}")
    needed = frozenset((needs,) if isinstance(needs, str) else needs)
    if not needed <= {"positives", "negatives"}:
        raise InvalidValueError(f"needs is any of 'positives' and 'negatives', got {quote(needs)}")
    settings: dict[str, Any] = {
        "minimize": minimize,
        "needs": needed,
        "whole_matrix": whole_matrix,
        "own": own,
    }
    name = getattr(formula, "__name__", type(formula).__name__)
    if len(inspect.signature(formula).parameters) > 1:
        return MetricFactory(name, formula, bounds, **settings)
    if callable(bounds):
        raise InvalidTypeError(f"{name}: bounds can be a function only of the formula's parameters, and it has none")
    return Metric(name, formula, bounds=bounds, **settings)


def get_metric(metric: str | Metric | Formula) -> Metric:
    """A Metric by name, as in ``"f1"``, ``"fbeta(beta=2)"`` or ``"recall[2]"``; a Metric as it is; a function made one.

    Names are parsed, never evaluated: parameters are literals.

    >>> get_metric("fbeta(beta=2)")
    fbeta(beta=2)
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        return metric_of(registry.parse(metric))
    if isinstance(metric, MetricFactory):
        raise InvalidTypeError(f"{metric!r} needs its parameters, as in {metric.name}(...)")
    if not callable(metric):
        raise InvalidTypeError(f"a metric is a Metric, its name or a function of Counts, got {quote(metric)}")
    made = _made(metric, False, (-math.inf, math.inf), (), False, own=True)
    if isinstance(made, MetricFactory):
        raise InvalidTypeError(f"{made!r} takes parameters besides Counts; fix them with a lambda, or use @metric")
    return made


def metric_of(parsed: registry.ParsedMetric) -> Metric:
    """Look up a metric that was written as text.

    Raises:
        InvalidValueError: There is no such metric, or it takes no parameters or other values.
        TypeError: The parameters are not those of the metric, or their values are no numbers.
    """
    entry = registry.find(parsed.name)
    if isinstance(entry, MetricFactory):
        metric = entry(*parsed.args, **parsed.kwargs)
    elif parsed.args or parsed.kwargs:
        raise InvalidValueError(f"{parsed.name} takes no parameters; write {parsed.name!r} alone")
    else:
        metric = entry
    assert isinstance(metric, Metric)
    return metric if parsed.index is None else metric[parsed.index]


def _literal(value: Parameter) -> str:
    return "[" + ", ".join(map(literal, value)) + "]" if isinstance(value, tuple) else literal(value)
