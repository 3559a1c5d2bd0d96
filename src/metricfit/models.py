"""Networks for tables, and the loss of networks that have several members. All return logits and can be stacked.

Outputs are logits ``(n, out_features)``; with one output that is the shape ``(n, 1)`` that every binary loss takes.
The embeddings are from Gorishniy et al. 2022, "On Embeddings for Numerical Features in Tabular Deep Learning", by its
authors' package rtdl_num_embeddings (the extra ``torch``), imported when first used.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal

from metricfit._extras import explain_missing
from metricfit.errors import InvalidTypeError, InvalidValueError

with explain_missing(__name__, ("torch",), "metricfit[torch]"):
    import torch
    from torch import Tensor, nn

    from metricfit.losses.calling import accepted_arguments, call_loss

__all__ = ["PerMember", "TabM", "embedded_mlp", "mlp", "piecewise_linear", "quantile_bins"]


def mlp(
    in_features: int,
    hidden: Sequence[int] = (32, 16),
    out_features: int = 1,
    dropout: float = 0.5,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Make a fully connected network.

    The default is the tabular network of Tsoi et al. 2022 (supplement 4.2).

    Args:
        in_features: Number of inputs.
        hidden: Number of units of each hidden layer.
        out_features: Number of logits.
        dropout: Dropout after each hidden layer; 0 for none.
        activation: Makes the activation after each hidden layer.

    Returns:
        The layers in sequence.

    Raises:
        ValueError: A layer has no units.

    Example:
        >>> mlp(6, hidden=(32,))
        Sequential(
          (0): Linear(in_features=6, out_features=32, bias=True)
          (1): ReLU()
          (2): Dropout(p=0.5, inplace=False)
          (3): Linear(in_features=32, out_features=1, bias=True)
        )
    """
    widths = [in_features, *hidden, out_features]
    if min(widths) < 1:
        raise InvalidValueError(f"every layer of an mlp needs at least one unit, got {widths}")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        layers += [nn.Linear(inputs, outputs), activation()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-2], out_features))


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
        rows = _extra("rtdl_num_embeddings").compute_bins(x, bins)
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
        module: nn.Module = _extra("rtdl_num_embeddings").PiecewiseLinearEmbeddings(
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
    flat: int = _embedding_shape(embedding).numel()
    return nn.Sequential(embedding, nn.Flatten(), *mlp(flat, hidden, out_features, dropout, activation))


def _embedding_shape(embedding: nn.Module) -> torch.Size:
    """Return the number of features of an embedding and the length of their vectors."""
    shape = getattr(embedding, "get_output_shape", None)
    if shape is None:
        raise InvalidTypeError(
            "embedding is a module of piecewise_linear(edges) or of rtdl_num_embeddings, got "
            f"{type(embedding).__name__}"
        )
    size: torch.Size = shape()
    return size


def _extra(package: str) -> Any:
    """Import a package of the extra ``torch``."""
    with explain_missing("metricfit.models", [package], "metricfit[torch]"):
        return import_module(package)


@contextmanager
def _allow_single_bins() -> Iterator[None]:
    """Suppress the warning about a single bin, which is all that a 0/1 column can have."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"The \d+-th feature has just two bin edges")
        yield


class TabM(nn.Module):
    """TabM (Gorishniy et al. 2025, "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling").

    The layers come from the authors' package ``tabm`` (the extra ``torch``). Inputs are numbers; encode text columns
    as one-hot columns.

    The output depends on the mode, because members learn well only from separate losses, and predict well only
    together:

    - ``eval()``: the mean of the members' logits, ``(n, out_features)``. (The authors average probabilities.)
    - ``train()``: every member's logits, ``(n, out_features, k)``, for the loss `PerMember`, which averages the
      members' losses. Other losses raise an error for this shape.

    The defaults are 2 blocks of width 64 instead of the authors' 3 blocks of width 512. On a CPU, the authors' take
    about thirty times as long.

    Args:
        in_features: Number of inputs.
        out_features: Number of logits.
        embedding: Embeds each input as a vector first, such as `piecewise_linear`. With many one-hot columns choose a
            small width, because every column is embedded.
        k: Number of members.
        blocks: Number of blocks.
        width: Number of units per block.
        dropout: Dropout in each block.
        architecture: "tabm", or "tabm-mini" with fewer weights per member.

    Raises:
        ValueError: The embedding is for another number of features.
        ModuleNotFoundError: The package ``tabm`` is not installed.

    Example:
        >>> model = TabM(3, k=4)
        >>> model(torch.zeros(5, 3)).shape, model.eval()(torch.zeros(5, 3)).shape
        (torch.Size([5, 1, 4]), torch.Size([5, 1]))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int = 1,
        *,
        embedding: nn.Module | None = None,
        k: int = 32,
        blocks: int = 2,
        width: int = 64,
        dropout: float = 0.1,
        architecture: Literal["tabm", "tabm-mini"] = "tabm",
    ) -> None:
        super().__init__()
        tabm = _extra("tabm")
        chunks = [1] * in_features
        if embedding is not None:
            embedded, size = _embedding_shape(embedding)
            if embedded != in_features:
                raise InvalidValueError(f"the embedding is for {embedded} features, but in_features is {in_features}")
            chunks = [size] * in_features
        self.k = k
        self.embedding = embedding
        self.view = tabm.EnsembleView(k=k)
        # tabm.TabM has these three layers too, but joins its inputs by column_stack, which vmap cannot batch.
        self.backbone = tabm.make_tabm_backbone(
            d_in=sum(chunks),
            n_blocks=blocks,
            d_block=width,
            dropout=dropout,
            k=k,
            arch_type=architecture,
            start_scaling_init="random-signs" if embedding is None else "normal",
            start_scaling_init_chunks=chunks,
        )
        self.output = tabm.LinearEnsemble(width, out_features, k=k)

    def members(self, x: Tensor) -> Tensor:
        """Return the logits of every member, in either mode.

        Args:
            x: The inputs, ``(n, in_features)``.

        Returns:
            ``(n, out_features, k)``.
        """
        if self.embedding is not None:
            x = self.embedding(x).flatten(1)
        logits: Tensor = self.output(self.backbone(self.view(x)))
        return logits.transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all members in training, and their mean in eval mode.

        Args:
            x: The inputs, ``(n, in_features)``.

        Returns:
            ``(n, out_features, k)`` in training, ``(n, out_features)`` in eval mode.
        """
        logits = self.members(x)
        return logits if self.training else logits.mean(-1)

    def extra_repr(self) -> str:
        """Return the number of members."""
        return f"k={self.k}"


class PerMember(nn.Module):
    r"""The mean over members of the objective on that member's logits: how `TabM` is trained.

    :math:`\frac1k \sum_j \mathrm{objective}_j(x_{\cdot\cdot j}, y)` for logits ``(n, c, k)``, k the number of
    ``members``. Logits ``(n, c)``, which `TabM` gives in eval mode, go to one objective alone.

    An objective with state (parameters, or buffers such as running counts and multipliers) is copied for each member,
    and the copies are called in turn. An objective without state is called once, under ``vmap``, which takes a tenth of
    the time with 32 members.

    Args:
        objective: The loss of one member, called as ``objective(logits, target)``.
        members: Number of members.

    Raises:
        ValueError: If ``members`` is below 1.

    Example:
        >>> loss = PerMember(nn.BCEWithLogitsLoss(), members=4)
        >>> target = torch.tensor([[1.0], [0.0]])
        >>> loss(torch.zeros(2, 1, 4), target), loss(torch.zeros(2, 1), target)
        (tensor(0.6931), tensor(0.6931))
    """

    def __init__(self, objective: nn.Module, members: int) -> None:
        super().__init__()
        if members < 1:
            raise InvalidValueError(f"PerMember needs at least one member, got {members}")
        self.members = members
        # A buffer that is still None counts: RunningCounts makes its own at first use.
        stateful = any(module._buffers or module._parameters for module in objective.modules())
        self.objectives = nn.ModuleList(copy.deepcopy(objective) for _ in range(members if stateful else 1))
        self.accepts = accepted_arguments(objective)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        index: Tensor | None = None,
        *,
        group: Tensor | None = None,
    ) -> Tensor:
        """Compute the mean over members of their losses.

        Args:
            logits: The outputs of the model, ``(n, c, members)``, or ``(n, c)`` in eval mode.
            target: The labels.
            weight: One weight per sample, for objectives that accept it.
            index: The positions of the samples in the training set, for objectives that accept them.
            group: The group numbers of the samples, for objectives that accept them.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If the logits have another shape, or ``weight`` was passed and the objective does not accept it.
        """
        if weight is not None and not self.accepts.weight:
            raise InvalidValueError(f"weight was passed, but {type(self.objectives[0]).__name__} does not accept it")

        def compute_loss(objective: nn.Module, column: Tensor) -> Tensor:
            return call_loss(objective, column, target, self.accepts, weight=weight, index=index, group=group)

        if logits.dim() < 3:
            return compute_loss(self.objectives[0], logits)
        if logits.dim() != 3 or logits.shape[-1] != self.members:
            raise InvalidValueError(
                f"PerMember of {self.members} members takes logits (n, c, {self.members}), or (n, c) in eval mode, "
                f"got {tuple(logits.shape)}"
            )
        if len(self.objectives) == 1:
            values: Tensor = torch.vmap(partial(compute_loss, self.objectives[0]), in_dims=-1)(logits)
            return values.mean()
        return torch.stack(list(map(compute_loss, self.objectives, logits.unbind(-1)))).mean()

    def extra_repr(self) -> str:
        """Return the number of members."""
        return f"members={self.members}"
