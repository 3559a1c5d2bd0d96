"""TabM: k networks that share most of their weights, trained side by side."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from metricfit.errors import InvalidValueError
from metricfit.models.embeddings import embedding_shape, extra


class TabM(nn.Module):
    """TabM (Gorishniy et al. 2025, "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling").

    Layers from its authors' package ``tabm`` (the extra ``tabular``). Numbers go in, text columns one-hot; with
    ``embedding``, such as `piecewise_linear`, each becomes a vector first.

    What comes out depends on the mode, because members learn well only from losses of their own, and judge well only
    together:

    - ``eval()``: the mean of the members' logits, ``(n, out_features)``. (The authors average probabilities.)
    - ``train()``: every member's logits, ``(n, out_features, k)``: for `PerMember`, which averages the members'
      losses. A plain loss refuses that shape rather than misread it.

    The defaults, 2 blocks of 64 in place of the authors' 3 of 512, are chosen for a CPU, where theirs take some
    thirty times as long. With many one-hot columns give embeddings a small width: every column gets one.

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
                raise InvalidValueError(f"the embedding is for {embedded} features, in_features is {in_features}")
            chunks = [size] * in_features
        self.k = k
        self.embedding = embedding
        self.view = tabm.EnsembleView(k=k)
        # tabm.TabM is these three in a row, but joins its inputs by column_stack, which vmap cannot batch.
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
        """The logits of every member, ``(n, out_features, k)``, in either mode."""
        if self.embedding is not None:
            x = self.embedding(x).flatten(1)
        logits: Tensor = self.output(self.backbone(self.view(x)))
        return logits.transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Features ``(n, in_features)`` to the members' logits in training, to their mean otherwise."""
        logits = self.members(x)
        return logits if self.training else logits.mean(-1)

    def extra_repr(self) -> str:
        """The number of members."""
        return f"k={self.k}"
