"""DecisionModule: a torch model together with its decision, as one module that is saved and exported.

It is the only module of ``decide`` that imports torch, and is loaded when it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from metricfit.core.numerics import is_positive
from metricfit.core.tensor_numerics import counting_dtype
from metricfit.core.thresholds import PerLabel
from metricfit.decide.decision import Decision, LabelDecision, TopLabelsDecision
from metricfit.errors import InvalidTypeError, InvalidValueError

#: The buffers of a decision that say of which kind it is; exactly one of them is not None.
KINDS = ("threshold", "offsets", "thresholds")
SHAPES = {
    "threshold": "logits (n,), (n, 1) or (n, 1, ...), because its decision is for two classes",
    "offsets": "logits (n, c, ...) with c = {}, because its decision is for {} classes",
    "thresholds": "logits (n, c, ...) with c = {}, because its decision is for {} labels",
}

#: Torch before 2.7 tells compiling and exporting not apart.
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


class Decided(NamedTuple):
    """What a DecisionModule returns.

    Attributes:
        labels: Class numbers, or 0 and 1 for two classes and for labels; int64.
        probabilities: The probability of the positive class, or of each class or label.
    """

    labels: Tensor
    probabilities: Tensor


class DecisionModule(nn.Module):
    r"""A model that returns labels and probabilities instead of logits.

    The decision is kept in buffers, so ``state_dict`` holds it. A state dict that is loaded brings its own decision,
    also one of another kind. ``torch.compile``, ``vmap`` and ``torch.export`` treat the module as any other. An
    exported program returns a plain tuple, and this package is not needed to load it.

    The numbers of the decision are float32, or float64 if the model's parameters are, and ``half()`` and
    ``to(torch.bfloat16)`` leave them so. Thresholds are rounded up, so that for logits of that type or a smaller one
    the labels are exactly what ``decision.decide(logits.double())`` returns.

    Args:
        model: A module that returns logits, or an object that has them in its attribute ``logits``.
        decision: The decision, for example by ``best_decision`` from logits of this model. Probabilities are
            calibrated if the decision has a calibration. Or one threshold of probabilities per label,
            ``metrics.PerLabel([...])``; labels are then decided as by ``Counts.hard`` at these thresholds.

    Attributes:
        model: The model.
        threshold: The threshold of logits, for two classes; otherwise None.
        offsets: What is added to the logits of several classes before the argmax; otherwise None.
        costs: The cost of each decision for each class, if the expected costs decide; otherwise None.
        thresholds: One threshold of logits per label; otherwise None.
        temperature: The temperature T of the calibration, 1 if there is none.
        bias: The bias b of the calibration, 0 if there is none. Probabilities are computed from
            the logits :math:`z / T + b`.

    Raises:
        InvalidTypeError: The model is no module, or the decision no Decision.
        InvalidValueError: The decision holds NaN, refers rows, is about costs of each row, or about a number of labels.

    Example:
        >>> from metricfit.decide import ThresholdDecision
        >>> model = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.ones_(model.weight)
        >>> decide = DecisionModule(model, ThresholdDecision(-1.0))
        >>> labels, probabilities = decide(torch.tensor([[0.0, 0.0], [-2.0, 0.0]]))
        >>> labels, probabilities.detach()
        (tensor([1, 0]), tensor([0.5000, 0.1192]))
    """

    threshold: Tensor | None
    offsets: Tensor | None
    thresholds: Tensor | None
    temperature: Tensor
    bias: Tensor
    costs: Tensor | None

    def __init__(self, model: nn.Module, decision: Decision | PerLabel) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise InvalidTypeError(f"model must be a torch.nn.Module that returns logits, got {type(model).__name__}")
        self.model = model
        self.set_decision(decision)

    def set_decision(self, decision: Decision | PerLabel) -> None:
        """Replace the decision, for example after the class balance has changed; the model stays as it is.

        Args:
            decision: The new decision, or one threshold of probabilities per label.

        Raises:
            InvalidTypeError: The decision is no Decision.
            InvalidValueError: The decision holds NaN, refers rows, is about costs of each row, or about a number of
                labels.
        """
        weight = next((each for each in self.model.parameters() if each.is_floating_point()), torch.empty(0))
        dtype, device = counting_dtype(weight.dtype), weight.device
        if isinstance(decision, PerLabel):
            thresholds = smallest_positive_logits(decision.numbers, dtype)
            decision = LabelDecision(thresholds)
        if not isinstance(decision, Decision):
            raise InvalidTypeError(
                f"decision must be a metricfit.decide.Decision, got {type(decision).__name__}; best_decision(logits, "
                "target, metric) makes one, and so do decide.ThresholdDecision(...) and metrics.PerLabel([...])"
            )
        if decision.of_row_costs:
            raise InvalidValueError(
                "a DecisionModule gets logits alone, and this decision is about costs of each row; let the estimator "
                "decide, or choose a decision with costs that are numbers, such as cost(fp=5, fn=80)"
            )
        if decision.referral is not None:
            raise InvalidValueError(
                "a DecisionModule decides every row, and this decision refers some; use dataclasses.replace(decision, "
                "referral=None), and decision.referred(logits) next to it"
            )
        if isinstance(decision, TopLabelsDecision):
            raise InvalidValueError(
                "a DecisionModule compares each label with a threshold, and this decision gives every row as many "
                "labels as the others: call decision.decide(logits), which takes tensors"
            )
        held: dict[str, Any] = dict.fromkeys((*KINDS, "costs")) | decision.numbers
        held |= {name: _round_up(held[name], dtype) for name in ("threshold", "thresholds") if held[name] is not None}
        calibration = decision.calibration
        held |= {"temperature": 1.0, "bias": 0.0} if calibration is None else vars(calibration)
        for name, numbers in held.items():
            self._hold(name, None if numbers is None else torch.as_tensor(numbers).to(device, dtype))

    def forward(self, *args: Any, **kwargs: Any) -> Decided:
        """Decide.

        Args:
            args: Arguments of the model.
            kwargs: Arguments of the model.

        Returns:
            Labels and probabilities; with logits ``(n,)``, ``(n, 1)`` or ``(n, 1, ...)`` both ``(n, ...)`` for two
            classes; with logits ``(n, c, ...)`` labels ``(n, ...)`` and probabilities ``(n, c, ...)`` for several
            classes, and both ``(n, c, ...)`` for labels. A row ``(c,)`` without ``n`` is decided by itself.

        Raises:
            InvalidTypeError: The model does not return a floating-point tensor.
            InvalidValueError: The logits have another shape than the decision is for.
        """
        output = self.model(*args, **kwargs)
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            what = f"{logits.dtype} numbers" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise InvalidTypeError(f"the model must return logits, a floating-point tensor; it returned {what}")
        logits = logits.to(counting_dtype(logits.dtype))
        numbers = next(each for each in (self.threshold, self.offsets, self.thresholds) if each is not None)
        axis = min(logits.dim(), 2) - 1
        if self.threshold is not None:
            if logits.dim() > 1 and logits.shape[1] != 1:
                raise self._wrong_shape("threshold", logits)
            logits = logits.squeeze(1) if logits.dim() > 1 else logits
            temperature, bias = self.temperature.reshape(()), self.bias.reshape(())
            return _result((logits >= numbers).long(), torch.sigmoid(logits / temperature + bias))
        if logits.dim() == 0 or logits.shape[axis] != numbers.shape[0]:
            raise self._wrong_shape("thresholds" if self.offsets is None else "offsets", logits)
        behind = [1] * (logits.dim() - axis - 1)
        numbers, temperature, bias = (each.reshape(-1, *behind) for each in (numbers, self.temperature, self.bias))
        calibrated = logits / temperature + bias
        if self.offsets is None:
            return _result((logits >= numbers).long(), torch.sigmoid(calibrated))
        probabilities = torch.softmax(calibrated, axis)
        if self.costs is not None:
            logits = -(probabilities.movedim(axis, -1) @ self.costs).movedim(-1, axis)
        return _result((logits + numbers).argmax(axis), probabilities)

    def extra_repr(self) -> str:
        """Return the decision as it is shown in the module's ``repr``."""
        return ", ".join(f"{name}={buffer.tolist()}" for name, buffer in self.named_buffers(recurse=False))

    def _hold(self, name: str, numbers: Tensor | None) -> None:
        """Keep numbers in a buffer. What is absent is no buffer: torch.export fails on modules with empty ones."""
        self._buffers.pop(name, None)
        self.__dict__.pop(name, None)
        if numbers is None:
            self.__dict__[name] = None
        else:
            self.register_buffer(name, numbers)

    def _wrong_shape(self, kind: str, logits: Tensor) -> InvalidValueError:
        count = len(getattr(self, kind)) if kind != "threshold" else 2
        expected = SHAPES[kind].format(count, count)
        return InvalidValueError(f"the model must return {expected}; it returned {tuple(logits.shape)}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DecisionModule:
        """Move the buffers with the model, but never to half precision, which would move the thresholds."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            moved = self._buffers[name]
            if buffer is not None and moved is not None and moved.dtype in (torch.float16, torch.bfloat16):
                self._buffers[name] = buffer.to(moved.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Make room for the saved decision, which may be of another kind or for another number of classes."""
        saved = {name: state_dict.get(prefix + name) for name in (*KINDS, "temperature", "bias", "costs")}
        kinds = [name for name in KINDS if saved[name] is not None]
        if len(kinds) > 1:
            raise InvalidValueError(f"the state dict holds {' and '.join(kinds)}, but a decision is of one kind")
        if kinds:
            device = self.temperature.device
            for name, numbers in saved.items():
                if numbers is not None or name in (*KINDS, "costs"):
                    self._hold(name, None if numbers is None else torch.empty_like(numbers, device=device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _result(labels: Tensor, probabilities: Tensor) -> Decided:
    """Return a named tuple, or while exporting a plain one, so that the exported program loads without this package."""
    return cast(Decided, (labels, probabilities)) if _is_exporting() else Decided(labels, probabilities)


def _round_up(thresholds: Any, dtype: torch.dtype) -> Tensor:
    """Return the smallest numbers of a type that are at least these."""
    numbers = torch.as_tensor(thresholds, dtype=torch.float64)
    rounded = numbers.to(dtype)
    above = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where(rounded.double() < numbers, above, rounded)


def smallest_positive_logits(thresholds: Tensor, dtype: torch.dtype) -> Tensor:
    """Find the smallest logits that are positive at thresholds of probabilities, by bisection over all numbers.

    The logarithm of the odds of a threshold would be rounded, and decide a logit differently whose probability is the
    threshold itself, as every threshold of ``curves.best_thresholds`` is.

    Args:
        thresholds: Thresholds of probabilities ``(c,)``.
        dtype: The type of the logits, float32 or float64.

    Returns:
        Thresholds of logits ``(c,)`` of that type, in float64: ``logits >= result`` makes the decisions of
        ``numerics.is_positive(logits, thresholds)``. They are infinite where all logits are decided alike.

    Example:
        >>> smallest_positive_logits(torch.tensor([0.75, 2.0]), torch.float64).round(decimals=2)
        tensor([1.1000,    inf], dtype=torch.float64)
    """
    bound = torch.as_tensor(thresholds).detach().cpu().double()
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    last = int(torch.tensor(torch.finfo(dtype).max, dtype=dtype).view(bits))
    low, high = torch.full_like(bound, -last, dtype=torch.int64), torch.full_like(bound, last, dtype=torch.int64)

    def number(place: Tensor) -> Tensor:  # floating-point numbers of one sign have the order of their bits
        return place.abs().to(bits).view(dtype) * torch.where(place < 0, -1.0, 1.0).to(dtype)

    always, never = is_positive(number(low), bound), ~is_positive(number(high), bound)
    while bool((high > low + 1).any()):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # their mean, without overflow
        positive = is_positive(number(middle), bound)
        low, high = torch.where(positive, low, middle), torch.where(positive, middle, high)
    found = number(high).double().masked_fill(never, math.inf)
    return found.masked_fill(always, -math.inf)
