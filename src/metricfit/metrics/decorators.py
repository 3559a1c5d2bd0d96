"""Decorators that turn a formula over counts into a metric."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, overload

from metricfit.core.arrays import Array
from metricfit.core.counts import Counts
from metricfit.metrics import registry
from metricfit.metrics.metric import Bounds, Formula, Metric, MetricFactory, make_metric

P = ParamSpec("P")

#: What the help of every metric says about calling it, before its example.
_CALL = """

Args:
    counts: Counts of shape ``(..., c)``, as ``Counts.soft``, ``Counts.hard`` and ``Counts.from_labels`` give them.

Returns:
    {returns} It is 0, with gradient 0, where the formula is 0/0.
"""
_PER_CLASS = "One value per class, ``(..., c)``."
_WHOLE_MATRIX = "One value for all classes, ``(...)``; for binary counts ``(..., 1)``."


class MetricDecorator(Protocol):
    """What ``metric(...)`` returns: it makes a Metric, or a factory where the function has parameters."""

    @overload
    def __call__(self, formula: Callable[[Counts], Array], /) -> Metric: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]  # mypy erases P
        self, formula: Callable[Concatenate[Counts, P], Array], /
    ) -> MetricFactory[P]: ...


@overload
def metric(formula: Callable[[Counts], Array]) -> Metric: ...
@overload
def metric(  # type: ignore[overload-cannot-match]  # mypy erases P
    formula: Callable[Concatenate[Counts, P], Array],
) -> MetricFactory[P]: ...
@overload
def metric(
    *,
    minimize: bool = ...,
    bounds: Bounds | Callable[..., Bounds] = ...,
    needs: Sequence[str] = ...,
    whole_matrix: bool = ...,
) -> MetricDecorator: ...
def metric(
    formula: Formula | None = None,
    *,
    minimize: bool = False,
    bounds: Bounds | Callable[..., Bounds] = (-math.inf, math.inf),
    needs: Sequence[str] = (),
    whole_matrix: bool = False,
) -> Any:
    """Make a Metric from a function of Counts, and register it under the function's name for ``get_metric``.

    The formula may divide by 0: where it gives 0/0, the value and the gradient are 0. Use ``metrics.root`` for a square
    root, because its gradient at 0 is finite.

    Args:
        formula: A function of Counts. With further parameters it makes a MetricFactory.
        minimize: Whether lower is better.
        bounds: The smallest and the largest value; for a factory also a function of the parameters.
        needs: Which of "positives" and "negatives" must be present for the value to be meaningful.
        whole_matrix: Whether the formula itself reduces over the classes.

    Returns:
        A Metric, or a MetricFactory if the function has further parameters. Without ``formula``, a decorator.

    Raises:
        InvalidTypeError: ``formula`` is not a function, or ``bounds`` is one although there are no parameters.
        InvalidValueError: ``needs`` is something else, or the name belongs to a metric of this library.

    Example:
        >>> @metric
        ... def lift(c):
        ...     return c.tp * c.n / (c.predicted * c.positives)
        >>> lift(Counts(tp=3, fp=1, fn=2, tn=4))
        array([1.5])
    """
    settings: dict[str, Any] = {"minimize": minimize, "bounds": bounds, "needs": needs, "whole_matrix": whole_matrix}
    return define(formula, **settings) if formula is not None else partial(define, **settings)


def define(formula: Formula, **settings: Any) -> Metric | MetricFactory[...]:
    """Make a metric of a user's function with settings of ``make_metric``, and register it under its name."""
    entry = make_metric(formula, user_defined=True, **settings)
    name = entry.base_name if isinstance(entry, Metric) else entry.name
    if name.isidentifier():  # a lambda has no name to be found by
        registry.add_user_defined(name, entry)
    return entry


def builtin(**settings: Any) -> Callable[[Callable[[Counts], Array]], Metric]:
    """Make a metric of this library, with settings of ``make_metric``, from a formula that guards its own divisions."""

    def build(formula: Callable[[Counts], Array]) -> Metric:
        entry = make_metric(formula, user_defined=False, **{"bounds": (0.0, 1.0), **settings})
        assert isinstance(entry, Metric)
        summary, example, code = inspect.cleandoc(formula.__doc__ or "").partition("\n\nExample:")
        returns = _WHOLE_MATRIX if entry.whole_matrix else _PER_CLASS
        entry.__doc__ = summary + _CALL.format(returns=returns).rstrip() + example + code
        registry.add_builtin(entry.name, entry)
        return entry

    return build


def builtin_factory(
    formula: Formula,
    *,
    minimize: bool = False,
    bounds: Bounds | Callable[..., Bounds] = (0.0, 1.0),
    needs: Sequence[str] = (),
    factory: type[MetricFactory[Any]] = MetricFactory,
) -> Callable[[Callable[P, None]], MetricFactory[P]]:
    """Make a factory of this library from a formula; the decorated function has its signature and documentation.

    A formula gets each parameter as a number or as a tensor with one number per class. Users give numbers or lists,
    hence the second signature.
    """

    def build(signature: Callable[P, None]) -> MetricFactory[P]:
        entry: MetricFactory[P] = factory(
            signature.__name__,
            formula,
            bounds,
            minimize=minimize,
            needs=frozenset(needs),
            whole_matrix=False,
            user_defined=False,
        )
        entry.__doc__ = inspect.cleandoc(signature.__doc__ or "")
        parameters = inspect.signature(signature, eval_str=True)
        entry.__signature__ = parameters.replace(return_annotation=Metric)
        registry.add_builtin(entry.name, entry)
        return entry

    return build
