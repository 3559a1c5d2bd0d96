"""Embeddings of numerical features: each number becomes a vector before the network sees it.

Gorishniy et al. 2022, "On Embeddings for Numerical Features in Tabular Deep Learning", by its authors' package
rtdl_num_embeddings (the extra ``tabular``), imported when first used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from metricfit._extras import explain_missing
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.models.dense import mlp


def quantile_bins(x: Tensor, bins: int = 48) -> Tensor:
    """Bin edges ``(d, bins + 1)`` at the quantiles of each training column, for `piecewise_linear`.

    A column with few distinct values has fewer bins; its row ends in infinities, so that all edges are one tensor that
    a file can hold. Columns must not be constant. Compute them on the training part alone; models that are to be
    stacked need the same ones.

    >>> quantile_bins(torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]]), bins=4)
    tensor([[0., 1., 2., 3., 4.],
            [0., 1., inf, inf, inf]])
    """
    if x.dim() != 2 or len(x) < 3:
        raise InvalidValueError(
            f"quantile_bins needs the training rows, (n, d) with n of 3 or more, got {tuple(x.shape)}"
        )
    if not x.isfinite().all():
        raise InvalidValueError(
            "quantile_bins needs finite values; fill in missing ones first (metricfit.data.Preparation)"
        )
    constant = (x == x[0]).all(0).nonzero().flatten().tolist()
    if constant:
        raise InvalidValueError(
            f"columns {constant} are constant and have no bins; drop them first (metricfit.data.Preparation does)"
        )
    bins = min(bins, len(x) - 1)
    with _single_bins_are_fine():
        rows = _rtdl().compute_bins(x, bins)
    edges = x.new_full((len(rows), bins + 1), torch.inf)
    for place, row in zip(edges, rows, strict=True):
        place[: len(row)] = row
    return edges


def piecewise_linear(edges: Tensor, width: int = 16) -> nn.Module:
    """Piecewise-linear embeddings ``(n, d) -> (n, d, width)`` with the edges of `quantile_bins`, version B (TabM's).

    The edges stay in the buffer ``edges``: a model can be built again from its state dict alone.

    >>> embedding = piecewise_linear(quantile_bins(torch.randn(100, 3), bins=8), width=4)
    >>> embedding(torch.zeros(5, 3)).shape, embedding.state_dict()["edges"].shape
    (torch.Size([5, 3, 4]), torch.Size([3, 9]))
    """
    with _single_bins_are_fine():
        module: nn.Module = _rtdl().PiecewiseLinearEmbeddings(
            [row[row.isfinite()] for row in edges], width, activation=False, version="B"
        )
    module.register_buffer("edges", edges.detach().clone())
    return module


def embedded_mlp(
    embedding: nn.Module,
    hidden: Sequence[int] = (128, 128),
    out_features: int = 1,
    dropout: float = 0.1,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """An `mlp` on embedded features; ``embedding`` is `piecewise_linear` or another module of rtdl_num_embeddings.

    >>> edges = quantile_bins(torch.randn(100, 3), bins=8)
    >>> embedded_mlp(piecewise_linear(edges), hidden=(32,))(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """
    flat: int = embedding_shape(embedding).numel()
    return nn.Sequential(embedding, nn.Flatten(), *mlp(flat, hidden, out_features, dropout, activation))


def embedding_shape(embedding: nn.Module) -> torch.Size:
    """(d, width) of an embedding."""
    shape = getattr(embedding, "get_output_shape", None)
    if shape is None:
        raise InvalidTypeError(
            "embedding is a module of piecewise_linear(edges) or of rtdl_num_embeddings, got "
            f"{type(embedding).__name__}"
        )
    size: torch.Size = shape()
    return size


def extra(package: str) -> Any:
    """Import a package of the extra ``tabular``."""
    with explain_missing("metricfit.models", [package], "metricfit[tabular]"):
        return import_module(package)


@contextmanager
def _single_bins_are_fine() -> Iterator[None]:
    """No warning for one bin, which is min-max scaling and all that a 0/1 column can have."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"The \d+-th feature has just two bin edges")
        yield


def _rtdl() -> Any:
    return extra("rtdl_num_embeddings")
