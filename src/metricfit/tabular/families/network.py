"""Settings of the networks of MetricClassifier; the networks themselves, in ``network_models``, need torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from metricfit.errors import InvalidValueError, quote
from metricfit.tabular.checks import check_positive, check_whole

KINDS = ("auto", "tabm", "embedded", "mlp")
OwnNetwork = Callable[[int, int], Any]
#: The recipes of ``train.recipes``, and a baseline for two classes.
RecipeName = Literal["bce", "metric", "mix", "two_stage", "constrained", "focal"]
RECIPES: tuple[RecipeName, ...] = ("bce", "metric", "mix", "two_stage", "constrained", "focal")
#: Recipes that do not use the metric.
WITHOUT_METRIC = ("bce", "focal")


@dataclass(frozen=True, repr=False)
class Network:
    """Settings of the networks of MetricClassifier.

    Args:
        kind: "mlp", "embedded" (an MLP with piecewise-linear embeddings), "tabm", or a function of the numbers of
            inputs and outputs that returns a module. "auto" is "embedded".
        recipe: "bce" (cross-entropy), "mix" (cross-entropy plus half the metric's loss), "metric", "two_stage" or
            "constrained"; as a baseline also "focal". For F1 with a tuned threshold, "bce" and "mix" were level in our
            comparison, and "bce" is faster.
        epochs: Epochs per stage, each of which has a learning rate that rises and falls; None to choose by the rows.
        patience: Epochs without a lower validation loss after which a member stops; None for a fifth of the epochs. The
            weights of the epoch with the lowest validation loss are kept.
        lr: The highest learning rate; None for 0.004.
        batch_size: Rows per step; None to choose by the rows.

    Raises:
        InvalidTypeError: A setting has a type that cannot be used.
        InvalidValueError: A setting has a value that cannot be used.

    Example:
        >>> Network(recipe="mix", epochs=20)
        Network(recipe='mix', epochs=20)
        >>> Network("tabm", recipe="constrained")
        Traceback (most recent call last):
        metricfit.errors.InvalidValueError: recipe='constrained' trains one network; use kind='embedded' or kind='mlp'
    """

    kind: str | OwnNetwork = "auto"
    recipe: RecipeName = "bce"
    epochs: int | None = None
    patience: int | None = None
    lr: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.kind) and self.kind not in KINDS:
            raise InvalidValueError(
                f"kind is one of {', '.join(map(repr, KINDS))}, or a function of the numbers of inputs and outputs "
                f"that returns a module; got {quote(self.kind)}"
            )
        if self.recipe not in RECIPES:
            raise InvalidValueError(f"recipe is one of {', '.join(map(repr, RECIPES))}; got {quote(self.recipe)}")
        if self.kind == "tabm" and self.recipe == "constrained":
            raise InvalidValueError(f"recipe={self.recipe!r} trains one network; use kind='embedded' or kind='mlp'")
        for name, what in (
            ("epochs", "epochs per stage, or None to choose by the rows"),
            ("patience", "epochs without a better value, or None for a fifth of the epochs"),
            ("batch_size", "rows per step, or None to choose by the rows"),
        ):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, what)
        if self.lr is not None:
            check_positive("lr", self.lr, "the learning rate, or None to choose it")

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"Network({', '.join(shown)})"
