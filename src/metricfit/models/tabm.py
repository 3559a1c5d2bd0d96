"""TabM: k networks that share most of their weights and are trained together."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from metricfit.errors import InvalidValueError
from metricfit.models.embeddings import embedding_shape, extra


class TabM(nn.Module):
    """TabM (Gorishniy et al. 2025, "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling").

    The layers come from the authors' package ``tabm`` (the extra ``tabular``). Inputs are numbers; encode text columns
    as one-hot columns.

    The output depends on the mode, because members learn well only from separate losses, and predict well only
    together:

    - ``eval()``: the mean of the members' logits, ``(n, out_features)``. (The authors average probabilities.)
    - ``train()``: every member's logits, ``(n, out_features, k)``, for the loss `PerMember`, which averages the
      members' losses. Other losses raise an error for this shape.

    The defaults, 2 blocks of width 64 instead of the authors' 3 blocks of width 512, are chosen for a CPU, on which the
    authors' take about thirty times as long.

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
        tabm = extra("tabm")
        chunks = [1] * in_features
        if embedding is not None:
            embedded, size = embedding_shape(embedding)
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
