"""The networks by name, and what is needed to build one again after loading."""

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
EMBEDDED_NUMBERS = 2048  # maximum width of an embedding times the number of columns
TABM_MEMBERS = 16


@dataclass(frozen=True)
class Network:
    """The description of a network, from which it can be built several times.

    Attributes:
        name: "blend", "tabm", "embedded", "mlp", or "own" for a user-defined network.
        in_features: Number of inputs.
        out_features: 1 for two classes, otherwise the number of classes.
        width: Width of the embedding of each input; 0 for no embeddings.
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
        """Number of networks that it consists of."""
        return {"tabm": TABM_MEMBERS, "blend": 2}.get(self.name, 1)

    @property
    def numbers_per_row(self) -> int:
        """Approximate number of activations per row, which decides how many members fit into memory together."""
        return self.in_features * max(1, self.width) + sum(HIDDEN) * self.parts

    def build(self, edges: Tensor | None = None, own: OwnNetwork | None = None) -> nn.Module:
        """Build a new network; embeddings need the edges of their bins."""
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
        """Return the description as values that JSON can hold."""
        return asdict(self)


def network_named(name: str | OwnNetwork, in_features: int, out_features: int) -> Network:
    """Describe the network of a name; tables with very many columns get no embeddings."""
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
    """Compute the edges of the bins of embeddings: quantiles of at most 100,000 training rows."""
    sample = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:100_000]]
    varies = bool((sample != sample[0]).any(0).all())
    return quantile_bins(sample if varies else x, BINS)
