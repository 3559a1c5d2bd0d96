"""Differentiable replacements of the decision "is the probability at least the threshold?".

A step is called as ``step(p, threshold)``, with ``p`` probabilities and the threshold a number or a tensor that
broadcasts against them. Every closed-form step is odd about its threshold,

    1 - step(p, t) = step(1 - p, 1 - t),

so that its complement is never computed by subtraction: where ``step(p, t)`` rounds to 1, the complement still has an
accurate small value and a gradient.
"""

from __future__ import annotations

import math
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from metricfit.core.step_formulas import SLOPE, VALUE, StepFunction, Threshold, both_ends
from metricfit.core.tensor_numerics import counting_dtype
from metricfit.core.thresholds import check_threshold
from metricfit.errors import InvalidTypeError, InvalidValueError, quote

#: Bound of the parameters of steps: float32 cannot hold the gradients of steeper steps or of flatter outer pieces.
STEEPEST = 1e6


class Step(nn.Module):
    """Base class of the steps. A user-defined step needs only ``forward(p, threshold)``, in torch operations.

    Example:
        >>> class Squared(Step):
        ...     def forward(self, p, threshold=0.5):
        ...         return p**2
        >>> Squared()(torch.tensor([0.5]))
        tensor([0.2500])
    """

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """Return the soft decision for probabilities ``p``, in [0, 1].

        Args:
            p: Probabilities of any shape.
            threshold: A number strictly between 0 and 1, or a tensor that broadcasts with ``p``.

        Returns:
            Numbers in [0, 1], of the shape of ``p``.

        Raises:
            InvalidTypeError: A subclass does not define ``forward``.
        """
        raise InvalidTypeError(f"{type(self).__name__} must define forward(p, threshold)")


StepClass = TypeVar("StepClass", bound=Step)


class ClosedFormStep(Step):
    """A step of one number with a closed-form slope, which the fast kernels know by its ``kind``.

    The kernels are used for the four classes of this module only, never for subclasses or for instances with hooks:
    see ``closed_form``.
    """

    kind: str
    #: The name of the number; Identity has none.
    parameter: str = ""

    @property
    def number(self) -> float:
        """The step's parameter, under the name that the kernels use."""
        return float(getattr(self, self.parameter)) if self.parameter else 0.0

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"{self.parameter}={self.number:g}" if self.parameter else ""

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """Return the soft decision for probabilities ``p``, in [0, 1]."""
        return self._evaluate(VALUE, p, threshold)

    def slope(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """Return the derivative of the step with respect to ``p``.

        Args:
            p: Probabilities of any shape.
            threshold: A number strictly between 0 and 1, or a tensor that broadcasts with ``p``.

        Returns:
            Numbers of at least 0, of the shape of ``p``.
        """
        return self._evaluate(SLOPE, p, threshold)

    def _evaluate(self, formulas: dict[str, StepFunction], p: Tensor, threshold: Threshold) -> Tensor:
        """Evaluate one formula in at least float32; half precision is too coarse near 0 and 1."""
        check_threshold(threshold)
        if self.kind not in formulas:
            raise InvalidTypeError(
                f"{type(self).__name__} has the unknown kind {self.kind!r}; derive from steps.Step instead"
            )
        wide = p.to(counting_dtype(p.dtype))
        result = formulas[self.kind](wide, 1 - wide, *both_ends(threshold, wide.dtype), self.number)
        return result if wide is p else result.to(p.dtype)


class Linear(ClosedFormStep):
    r"""Piecewise linear through (0, 0), (a, delta), (t, 1/2), (b, 1 - delta), (1, 1). Tsoi et al. 2022, Eq. 5.

    With :math:`t_m = \min(t, 1-t)`, :math:`a = t - t_m/2` and :math:`b = t + t_m/2`. Lipschitz with the largest
    of its three slopes (Theorem 4.1).

    Args:
        delta: The share of each outer piece, from 1e-6 to below 0.5. The gradient of a confidently wrong sample is
            proportional to it. At the limits 0 and 0.5, which are not taken, the outer or the middle piece is flat.

    Raises:
        InvalidValueError: ``delta`` is out of range.

    Example:
        >>> Linear(delta=0.1)(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
        tensor([0.0000, 0.1000, 0.5000, 0.9000, 1.0000])
    """

    kind, parameter = "linear", "delta"

    def __init__(self, delta: float = 0.1) -> None:
        super().__init__()
        if not 1 / STEEPEST <= delta < 0.5:
            raise InvalidValueError(f"Linear needs a delta of at least {1 / STEEPEST:g} and below 0.5, got {delta}")
        self.delta = float(delta)


#: The default steps of independent columns and of exclusive classes.
COLUMNS_STEP, CLASSES_STEP = Linear(delta=0.1), Linear(delta=0.2)


class Sigmoid(ClosedFormStep):
    r"""The logistic curve :math:`1/(1+e^{-k(p-t)})`. Tsoi et al. 2022; Han et al. 2024 (AnyLoss) with k = 73.

    Gradients are computed from both tails, so that they do not vanish in float32 at k = 73.

    Args:
        k: The steepness, above 0 and at most 1e6. Above about 50 training often collapses; 10 to 30 is a good range.

    Raises:
        InvalidValueError: ``k`` is out of range.

    Example:
        >>> Sigmoid(k=10)(torch.tensor([0.5]))
        tensor([0.5000])
    """

    kind, parameter = "sigmoid", "k"

    def __init__(self, k: float = 10.0) -> None:
        super().__init__()
        if not 0.0 < k <= STEEPEST:
            raise InvalidValueError(f"Sigmoid needs k above 0 and at most {STEEPEST:g}, got {k}")
        self.k = float(k)


class Identity(ClosedFormStep):
    """The probability itself, for any threshold: soft Dice, macro soft F-beta (Lee et al. 2021, Eq. 24).

    Example:
        >>> Identity()(torch.tensor([0.3]))
        tensor([0.3000])
    """

    kind = "identity"


class RaisedCosine(ClosedFormStep):
    r"""A smooth step from 0 at t - width to 1 at t + width. The score-oriented loss of Marchetti et al. 2022.

    Between the two it is :math:`\frac12(1 + u + \sin(\pi u)/\pi)` with u = (p - t)/width.

    The gradient is exactly 0 outside the window. Start from a model whose scores lie inside it, or anneal towards it.

    Args:
        width: Half the width of the window, at least 1e-6.

    Raises:
        InvalidValueError: ``width`` is out of range.

    Example:
        >>> RaisedCosine(width=0.1)(torch.tensor([0.3, 0.5, 0.7]))
        tensor([0.0000, 0.5000, 1.0000])
    """

    kind, parameter = "raised_cosine", "width"

    def __init__(self, width: float = 0.1) -> None:
        super().__init__()
        if not 1 / STEEPEST <= width < math.inf:
            raise InvalidValueError(f"RaisedCosine needs a finite width of at least {1 / STEEPEST:g}, got {width}")
        self.width = float(width)


class ThreePoint(Step):
    r"""Piecewise linear through (0, 0), (t, 1/2) and (1, 1). Tsoi et al. 2022, supplement, Eq. 23.

    The slopes are :math:`1/(2t)` below the threshold and :math:`1/(2(1-t))` above it. They are equal at t = 1/2, where
    the step is the probability itself, and far apart near 0 and 1: the authors found it hard to optimise there, and
    added the two points of ``Linear``. It has no parameter, and no kernel of its own.

    Example:
        >>> ThreePoint()(torch.tensor([0.0, 0.1, 0.2, 0.6, 1.0]), 0.2)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """Return the soft decision for probabilities ``p``, in [0, 1]."""
        check_threshold(threshold)
        wide = p.to(counting_dtype(p.dtype))
        t, u = both_ends(threshold, wide.dtype)
        result = torch.where(wide <= t, wide / (2 * t), 1 - (1 - wide) / (2 * u))
        return result if wide is p else result.to(p.dtype)


class StraightThrough(Step):
    """The hard decision forward, another step's gradient backward (Bengio et al. 2013).

    Args:
        step: The step whose gradient is used; by default ``Linear(0.1)``.

    Raises:
        InvalidTypeError: ``step`` is not a step.

    Example:
        >>> StraightThrough(Linear())(torch.tensor([0.3, 0.5]))
        tensor([0., 1.])
    """

    def __init__(self, step: Step | None = None) -> None:
        super().__init__()
        self.step = Linear() if step is None else _check_step(step, "StraightThrough")

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """Return the hard decision, with the gradient of the inner step."""
        soft: Tensor = self.step(p, threshold)
        return (p >= threshold).to(soft.dtype) + (soft - soft.detach())


class Annealed(Step):
    """``(1 - a) start + a end``, with ``a`` going from 0 to 1 as ``advance(fraction)`` is called.

    ``a`` is a buffer: it moves with ``.to()``, is saved in ``state_dict`` and can differ between the members of a
    stacked population.

    Args:
        start: The step at the beginning of training.
        end: The step at the end of training.

    Raises:
        InvalidTypeError: ``start`` or ``end`` is not a step.

    Example:
        >>> step = Annealed(Identity(), Sigmoid(k=50))
        >>> step.advance(0.25)
        >>> step.a
        tensor(0.2500)
    """

    a: Tensor

    def __init__(self, start: Step, end: Step) -> None:
        super().__init__()
        self.start = _check_step(start, "Annealed")
        self.end = _check_step(end, "Annealed")
        self.register_buffer("a", torch.zeros(()))

    def advance(self, fraction: float) -> None:
        """Set how much of the training is done.

        Args:
            fraction: From 0 (only ``start``) to 1 (only ``end``).

        Raises:
            InvalidValueError: ``fraction`` is out of range.
        """
        if not 0.0 <= fraction <= 1.0:
            raise InvalidValueError(f"advance takes the fraction of training done, from 0 to 1, got {fraction}")
        self.a.fill_(fraction)

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """Return the mixture of the two steps."""
        return torch.lerp(self.start(p, threshold), self.end(p, threshold), self.a.to(p.dtype))


def _check_step(step: object, owner: str) -> Step:
    if not isinstance(step, Step):
        raise InvalidTypeError(f"{owner} needs a step such as steps.Linear(), got {quote(step)}")
    return step


def closed_form(step: Step) -> ClosedFormStep | None:
    """Return the step if it is exactly one of this module's closed-form steps, else None."""
    return step if is_unchanged(step, Linear, Sigmoid, Identity, RaisedCosine) else None


def is_unchanged(step: Step, *classes: type[StepClass]) -> TypeGuard[StepClass]:
    """Return whether the step computes exactly what its class defines, so that a kernel may replace the call.

    A subclass may override ``forward``, and an instance may have a ``forward`` or hooks of its own: such steps must be
    called.
    """
    if type(step) not in classes or "forward" in step.__dict__:
        return False
    return not (step._forward_hooks or step._forward_pre_hooks or step._backward_hooks or step._backward_pre_hooks)
