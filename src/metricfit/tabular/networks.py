"""Networks by name, and what is needed to build one again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError, quote
from metricfit.models import Blend, TabM, embedded_mlp, mlp, piecewise_linear, quantile_bins

NAMES = ("auto", "blend", "tabm", "embedded", "mlp")
OwnNetwork = Callable[[int, int], nn.Module]

HIDDEN = (128, 128)
PLAIN_DROPOUT, EMBEDDED_DROPOUT = 0.2, 0.3
BINS = 32
EMBEDDED_NUMBERS = 2048  # an embedding's width times the columns: wider tables have narrower embeddings
TABM_MEMBERS = 16


@dataclass(frozen=True)
class Network:
    """A network to build several times.

    Attributes:
        name: "blend", "tabm", "embedded", "mlp", or "own" for the user's.
        in_features: columns of numbers.
        out_features: 1 for two classes, else as many as there are classes.
        width: of each number's embedding; 0 for none.
    """

    name: str
    in_features: int
    out_features: int
    width: int = 0

    def __post_init__(self) -> None:
        if self.name not in (*NAMES[1:], "own"):
            raise InvalidValueError(f"there is no network {quote(self.name)}")

    @property
    def parts(self) -> int:
        """How many networks it is within itself."""
        return {"tabm": TABM_MEMBERS, "blend": 2}.get(self.name, 1)

    @property
    def numbers_per_row(self) -> int:
        """About how many numbers a row becomes inside, which decides how many members fit into memory together."""
        return self.in_features * max(1, self.width) + sum(HIDDEN) * self.parts

    def build(self, edges: Tensor | None = None, own: OwnNetwork | None = None) -> nn.Module:
        """A fresh network; embeddings need the edges of their bins."""
        if self.name == "own":
            if own is None:
                raise InvalidValueError("the network is the user's own: give the function that makes it")
            return own(self.in_features, self.out_features)
        embedding = None
        if self.width:
            if edges is None:
                raise InvalidValueError(f"the network {self.name!r} needs the edges of its embeddings")
            embedding = piecewise_linear(edges, self.width)
        if self.name == "tabm":
            return TabM(self.in_features, self.out_features, embedding=embedding, k=TABM_MEMBERS)
        plain = mlp(self.in_features, HIDDEN, self.out_features, PLAIN_DROPOUT)
        if embedding is None:
            return plain
        embedded = embedded_mlp(embedding, HIDDEN, self.out_features, EMBEDDED_DROPOUT)
        return embedded if self.name == "embedded" else Blend(plain, embedded)

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def network_named(name: str | OwnNetwork, in_features: int, out_features: int) -> Network:
    """The network of a name; tables with very many columns go without embeddings."""
    if callable(name):
        return Network("own", in_features, out_features)
    if name not in NAMES[1:]:
        raise InvalidValueError(
            f"network is one of {', '.join(map(repr, NAMES))}, or a function of the numbers of inputs and outputs "
            f"that gives a module; got {quote(name)}"
        )
    width = 0 if name == "mlp" else min(8 if name == "tabm" else 16, EMBEDDED_NUMBERS // in_features)
    width = width if width > 1 else 0
    return Network(name if width or name == "tabm" else "mlp", in_features, out_features, width)


def edges_of(x: Tensor) -> Tensor:
    """Edges of the bins of embeddings: quantiles of the training rows, of 100,000 where there are more."""
    enough = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:100_000]]
    varies = bool((enough != enough[0]).any(0).all())
    return quantile_bins(enough if varies else x, BINS)
