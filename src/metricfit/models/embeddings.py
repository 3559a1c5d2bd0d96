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
    """Compute bin edges at the quantiles of each training column, for `piecewise_linear`.

    Compute them on the training rows only. Models that will be stacked need the same edges.

    Args:
        x: The training rows, ``(n, d)``, finite and without constant columns.
        bins: Maximum number of bins.

    Returns:
        Edges ``(d, bins + 1)``. A column with few distinct values has fewer bins, and its row ends in infinities.

    Raises:
        ValueError: There are fewer than three rows, values that are not finite, or constant columns.

    Example:
        >>> quantile_bins(torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]]), bins=4)
        tensor([[0., 1., 2., 3., 4.],
                [0., 1., inf, inf, inf]])
    """
    if x.dim() != 2 or len(x) < 3:
        raise InvalidValueError(
            f"quantile_bins needs the training rows, (n, d) with n of 3 or more, got {tuple(x.shape)}"
        )
    if not x.isfinite().all():
        raise InvalidValueError("quantile_bins needs finite values; fill in missing ones first")
    constant = (x == x[0]).all(0).nonzero().flatten().tolist()
    if constant:
        raise InvalidValueError(f"columns {constant} are constant and have no bins; drop them first")
    bins = min(bins, len(x) - 1)
    with _allow_single_bins():
        rows = _rtdl().compute_bins(x, bins)
    edges = x.new_full((len(rows), bins + 1), torch.inf)
    for column_edges, row in zip(edges, rows, strict=True):
        column_edges[: len(row)] = row
    return edges


def piecewise_linear(edges: Tensor, width: int = 16) -> nn.Module:
    """Make piecewise-linear embeddings ``(n, d) -> (n, d, width)``, version B of rtdl_num_embeddings, as in TabM.

    Args:
        edges: The bin edges of `quantile_bins`. They are kept in the buffer ``edges``, so that a model can be built
            again from its state dict.
        width: Length of the vector for each feature.

    Returns:
        The embedding module.

    Raises:
        ModuleNotFoundError: rtdl_num_embeddings is not installed.

    Example:
        >>> embedding = piecewise_linear(quantile_bins(torch.randn(100, 3), bins=8), width=4)
        >>> embedding(torch.zeros(5, 3)).shape, embedding.state_dict()["edges"].shape
        (torch.Size([5, 3, 4]), torch.Size([3, 9]))
    """
    with _allow_single_bins():
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
    """Make an `mlp` on embedded features.

    Args:
        embedding: A module of `piecewise_linear` or another embedding of rtdl_num_embeddings.
        hidden: Number of units of each hidden layer.
        out_features: Number of logits.
        dropout: Dropout after each hidden layer; 0 for none.
        activation: Makes the activation after each hidden layer.

    Returns:
        The embedding and the layers in sequence.

    Raises:
        TypeError: The module is not an embedding.

    Example:
        >>> edges = quantile_bins(torch.randn(100, 3), bins=8)
        >>> embedded_mlp(piecewise_linear(edges), hidden=(32,))(torch.zeros(5, 3)).shape
        torch.Size([5, 1])
    """
    flat: int = embedding_shape(embedding).numel()
    return nn.Sequential(embedding, nn.Flatten(), *mlp(flat, hidden, out_features, dropout, activation))


def embedding_shape(embedding: nn.Module) -> torch.Size:
    """Return the number of features of an embedding and the length of their vectors."""
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
def _allow_single_bins() -> Iterator[None]:
    """Suppress the warning about a single bin, which is all that a 0/1 column can have."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"The \d+-th feature has just two bin edges")
        yield


def _rtdl() -> Any:
    return extra("rtdl_num_embeddings")
