"""The kinds of networks for tables, and what is needed to build one again after loading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError, quote
from metricfit.models import Blend, TabM, embedded_mlp, mlp, piecewise_linear, quantile_bins

KINDS = ("auto", "blend", "tabm", "embedded", "mlp")
OwnNetwork = Callable[[int, int], nn.Module]

HIDDEN = (64, 64)
DROPOUT = 0.15
BINS = 32
#: Rows from which the edges of the bins are computed.
ROWS_FOR_EDGES = 100_000
#: Maximum width of an embedding times the number of columns.
EMBEDDED_NUMBERS = 1024
TABM_MEMBERS = 16


@dataclass(frozen=True)
class Architecture:
    """The description of a network, from which it can be built several times.

    Attributes:
        kind: "blend", "tabm", "embedded", "mlp", or "own" for a user-defined network.
        in_features: Number of inputs.
        out_features: 1 for two classes, otherwise the number of classes.
        width: Width of the embedding of each input; 0 for no embeddings.
        hidden: Number of units of each hidden layer of "blend", "embedded" and "mlp".

    Raises:
        InvalidValueError: There is no such kind.
    """

    kind: str
    in_features: int
    out_features: int
    width: int = 0
    hidden: tuple[int, ...] = HIDDEN

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS[1:], "own"):
            raise InvalidValueError(f"there is no network of the kind {quote(self.kind)}")

    @property
    def parts(self) -> int:
        """Number of networks that it consists of, each with its own loss."""
        return {"tabm": TABM_MEMBERS, "blend": 2}.get(self.kind, 1)

    @property
    def numbers_per_row(self) -> int:
        """Approximate number of activations per row, which decides how many members fit into memory together."""
        return self.in_features * max(1, self.width) + sum(self.hidden) * self.parts

    def build(self, edges: Tensor | None = None, own: OwnNetwork | None = None) -> nn.Module:
        """Build a new network.

        Args:
            edges: The edges of the bins of embeddings.
            own: The user's function, for the kind "own".

        Returns:
            The network, with random weights.

        Raises:
            InvalidValueError: The edges or the function are missing.
        """
        if self.kind == "own":
            if own is None:
                raise InvalidValueError("the network is the user's own: give the function that makes it")
            return own(self.in_features, self.out_features)
        embedding = None
        if self.width:
            if edges is None:
                raise InvalidValueError(f"the network {self.kind!r} needs the edges of its embeddings")
            embedding = piecewise_linear(edges, self.width)
        if self.kind == "tabm":
            return TabM(self.in_features, self.out_features, embedding=embedding, k=TABM_MEMBERS)
        plain = mlp(self.in_features, self.hidden, self.out_features, DROPOUT)
        if embedding is None:
            return plain
        embedded = embedded_mlp(embedding, self.hidden, self.out_features, DROPOUT)
        return embedded if self.kind == "embedded" else Blend(plain, embedded)

    def state(self) -> dict[str, Any]:
        """Return the description as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Architecture:
        """Restore a description that ``state`` returned."""
        return cls(**{**state, "hidden": tuple(state["hidden"])})


def choose_architecture(kind: str | OwnNetwork, in_features: int, out_features: int) -> Architecture:
    """Describe the network of a kind; tables with very many columns get no embeddings."""
    if callable(kind):
        return Architecture("own", in_features, out_features)
    width = 0 if kind == "mlp" else min(8 if kind == "tabm" else 16, EMBEDDED_NUMBERS // in_features)
    width = width if width > 1 else 0
    return Architecture(kind if width or kind == "tabm" else "mlp", in_features, out_features, width)


def bin_edges(x: Tensor) -> Tensor:
    """Compute the edges of the bins of embeddings: quantiles of at most 100,000 training rows.

    A column that is constant in these rows gets a single bin, of width 1.

    >>> bin_edges(torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]]))
    tensor([[0., 1., 2.],
            [5., 6., inf]])
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    sample = x[order[:ROWS_FOR_EDGES]]
    constant = (sample == sample[0]).all(0)
    bins = min(BINS, len(sample) - 1)
    edges = sample.new_full((x.shape[1], bins + 1), torch.inf)
    edges[constant, 0], edges[constant, 1] = sample[0, constant], sample[0, constant] + 1.0
    if not bool(constant.all()):
        edges[~constant] = quantile_bins(sample[:, ~constant], BINS)
    return edges
