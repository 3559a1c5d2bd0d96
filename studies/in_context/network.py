"""The in-context classifier: attention over the columns of a row and over the rows of a column, then over whole rows.

Every cell becomes a vector, and the label of a row is one more cell (unknown for rows to predict). Cell layers mix
cells within a row and within a column. Then each row becomes one wider vector, and row layers mix rows. Keys and
values are taken from the first ``visible`` rows alone: the labelled rows, and as many unlabelled ones as the caller
shows. So the prediction for a row that is not visible does not depend on which other rows are predicted with it.

Weights of equal layers are stacked in one tensor. ``metricfit.tabular.families.context_network`` is the same in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: What the network can be asked to decide for; the first means cross-entropy alone.
METRICS = ("log_loss", "f1", "fbeta(beta=2)", "mcc", "gmean", "cost(fp=1, fn=10)")
#: Numbers that describe a cell: value, rank, share of equal values, missing, and waves of the rank.
WAVES = 5
#: Whether attention to columns uses the Triton kernel on a GPU; it is written out in torch otherwise.
KERNEL = True
#: A class without labelled rows counts as if it had this share.
SMALLEST_SHARE = 1e-6
INPUTS = 4 + 2 * WAVES


@dataclass(frozen=True)
class Settings:
    """The sizes of a network.

    Attributes:
        width: Width of a cell's vector.
        heads: Attention heads of cell layers.
        cell_layers: Number of cell layers.
        row_width: Width of a row's vector.
        row_heads: Attention heads of row layers.
        row_layers: Number of row layers.
        classes: The most classes that it can tell apart.
        places: Length of the random vector that tells a column from the others.
    """

    width: int = 128
    heads: int = 4
    cell_layers: int = 5
    row_width: int = 256
    row_heads: int = 8
    row_layers: int = 5
    classes: int = 10
    places: int = 32

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight; matrices are ``(layer, in, out)`` and multiply from the right."""
        d, r, a, b = self.width, self.row_width, self.cell_layers, self.row_layers
        return {
            "cell": (INPUTS, d),
            "place": (self.places, d),
            "label": (self.classes + 1, d),
            "column_qkv": (a, 3, d, d),
            "column_out": (a, d, d),
            "cell_qkv": (a, 3, d, d),
            "cell_scale": (a, self.heads),
            "cell_out": (a, d, d),
            "cell_up": (a, d, 2 * d),
            "cell_down": (a, 2 * d, d),
            "row_in": (2 * d, r),
            "row_label": (self.classes + 1, r),
            "metric": (len(METRICS), r),
            "row_qkv": (b, 3, r, r),
            "row_scale": (b, self.row_heads),
            "row_out": (b, r, r),
            "row_up": (b, r, 4 * r),
            "row_down": (b, 4 * r, r),
            "head": (r, self.classes + 1),
        }

    def as_dict(self) -> dict[str, int]:
        """Return the sizes by name, for a file."""
        return asdict(self)


#: Weights whose layers start at zero, so that the network starts as the identity.
ZERO = ("column_out", "cell_out", "cell_down", "row_out", "row_down", "head")
#: Stacked matrices, which the optimiser treats as matrices; all other weights are vectors to it.
MATRICES = (
    *("column_qkv", "column_out", "cell_qkv", "cell_out", "cell_up", "cell_down"),
    *("row_qkv", "row_out", "row_up", "row_down"),
)


def describe_cells(x: Tensor, visible: int) -> Tensor:
    """Describe each cell by numbers, from the visible rows of its column.

    Args:
        x: Columns ``(b, n, f)``; NaN is missing.
        visible: Number of rows, from the first, that means and ranks are taken from.

    Returns:
        ``(b, n, f, INPUTS)``: signed logarithm of the standardised value, rank from -1 to 1, share of visible rows with
        the same value, whether it is missing, and sines and cosines of the rank. All but one are 0 if it is missing.
    """
    missing = x.isnan()
    known = (~missing[:, :visible]).float()
    count = known.sum(1, keepdim=True).clamp_min(1)
    shown = torch.nan_to_num(x[:, :visible])
    mean = (shown * known).sum(1, keepdim=True) / count
    spread = (((shown - mean) * known).square().sum(1, keepdim=True) / count).sqrt() + 1e-6
    z = (torch.nan_to_num(x) - mean) / spread
    z = z.sign() * z.abs().log1p()
    ordered = torch.where(known > 0, shown, math.inf).transpose(1, 2).contiguous().sort(-1).values
    queries = torch.nan_to_num(x).transpose(1, 2).contiguous()
    below, up_to = (torch.searchsorted(ordered, queries, right=right).transpose(1, 2) for right in (False, True))
    rank = (below + up_to) / count - 1
    angles = [math.pi / 2 * 2**power * rank for power in range(WAVES)]
    parts = [z, rank, (up_to - below) / count]
    waves = [wave for angle in angles for wave in (angle.sin(), angle.cos())]
    described = torch.stack([*parts, torch.zeros_like(z), *waves], -1)
    flag = (torch.arange(INPUTS, device=x.device) == 3).to(described)
    return torch.where(missing[..., None], flag, described)


def normalise(x: Tensor) -> Tensor:
    """Divide by the root mean square of the last axis."""
    return F.rms_norm(x, (x.shape[-1],), eps=1e-6)


def feed_forward(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return the change by a hidden layer with GELU."""
    return F.gelu(normalise(x) @ up, approximate="tanh") @ down


def look_up(table: Tensor, rows: Tensor) -> Tensor:
    """Return these rows of a small table, by a product: the gradient of indexing is slow on a GPU."""
    return F.one_hot(rows, len(table)).to(table) @ table


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of ``(b, n, h, e)`` to ``(b, m, h, e)``."""
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def attend_columns(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention within each row, ``(rows, columns, heads, e)``: a kernel on a GPU, written out elsewhere."""
    if query.is_cuda and KERNEL:
        from studies.in_context import column_attention

        return column_attention.attend_columns(query, key, value)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return (torch.softmax(logits, -1) @ value).transpose(1, 2)


def scaled(weight: Tensor, scale: Tensor) -> Tensor:
    """Scale the columns of a matrix ``(d, d)`` by a scale per head; this costs less than scaling queries."""
    return weight * scale.repeat_interleave(weight.shape[1] // len(scale))


def cell_layer(
    x: Tensor, visible: int, scale: Tensor, heads: int, column: tuple[Tensor, Tensor], rows: tuple[Tensor, ...]
) -> Tensor:
    """Mix the cells ``(b, n, k, d)`` within each row, then within each column.

    Args:
        x: The cells.
        visible: Number of rows that keys are taken from.
        scale: Scale of attention to rows, per head.
        heads: Number of heads.
        column: Weights of the attention to the columns of a row: qkv, out.
        rows: Weights of the attention to the rows of a column, and of the hidden layer: qkv, out, up, down.
    """
    b, n, k, d = x.shape
    e = d // heads
    y = normalise(x)
    query, key, value = ((y @ w).view(b * n, k, heads, e) for w in column[0].unbind(0))
    x = x + attend_columns(query, key, value).reshape(b, n, k, d) @ column[1]
    qkv, out, up, down = rows
    y = normalise(x)
    query = (y @ scaled(qkv[0], scale)).view(b, n, k * heads, e)  # every head of every column is a head
    key, value = ((y[:, :visible] @ w).view(b, visible, k * heads, e) for w in qkv[1:].unbind(0))
    x = x + attend(query, key, value).reshape(b, n, k, d) @ out
    return x + feed_forward(x, up, down)


def row_layer(x: Tensor, visible: int, scale: Tensor, heads: int, weights: tuple[Tensor, ...]) -> Tensor:
    """Mix the rows ``(b, n, r)``; weights are qkv, out, up, down."""
    b, n, r = x.shape
    qkv, out, up, down = weights
    y = normalise(x)
    query = (y @ scaled(qkv[0], scale)).view(b, n, heads, r // heads)
    key, value = ((y[:, :visible] @ w).view(b, visible, heads, r // heads) for w in qkv[1:].unbind(0))
    x = x + attend(query, key, value).reshape(b, n, r) @ out
    return x + feed_forward(x, up, down)


@dataclass(frozen=True)
class Output:
    """What the network says about the rows after the labelled ones.

    Attributes:
        logits: One logit per class ``(b, q, classes)``; classes without labelled rows have very low ones.
        decisions: For two classes, a logit that is positive where the row should be called positive, for the metric
            ``(b, q)``.
    """

    logits: Tensor
    decisions: Tensor

    @property
    def binary(self) -> Tensor:
        """The logit of the positive one of two classes ``(b, q)``."""
        return self.logits[..., 1] - self.logits[..., 0]


class Network(nn.Module):
    """The network; its parameters are named in ``Settings.shapes``."""

    def __init__(self, settings: Settings, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        generator = torch.Generator().manual_seed(seed)
        for name, shape in settings.shapes().items():
            if name in ZERO:
                value = torch.zeros(shape)
            elif name.endswith("_scale"):
                value = torch.ones(shape)
            else:
                spread = 0.5 if name in ("label", "row_label", "metric") else shape[-2] ** -0.5
                value = spread * torch.randn(shape, generator=generator)
            self.register_parameter(name, nn.Parameter(value))

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        place: Tensor,
        metric: Tensor,
        visible: int | None = None,
        low: torch.dtype = torch.float32,
        layers: tuple[Callable[..., Tensor], Callable[..., Tensor]] = (cell_layer, row_layer),
    ) -> Output:
        """Predict the rows that have no label.

        Args:
            x: Columns ``(b, n, f)``; NaN is missing.
            y: Class numbers ``(b, m)`` of the first m rows.
            place: Random normal vectors of columns ``(b, f, places)``.
            metric: Number of the metric in ``METRICS``, ``(b,)``.
            visible: Number of rows that others may look at: at least m, which is the default. The rows between are
                unlabelled rows that the network sees.
            low: The type of the layers' arithmetic.
            layers: The functions of the layers, for compiled ones.
        """
        visible = y.shape[1] if visible is None else visible
        settings, weights = self.settings, {name: value.to(low) for name, value in self.named_parameters()}
        scale = math.log(visible) / math.log(200)
        h = self._embed(x, y, place, visible, weights, low)
        stacks = {name: weights[name].unbind(0) for name in (*MATRICES, "cell_scale", "row_scale")}
        for number in range(settings.cell_layers):
            column = (stacks["column_qkv"][number], stacks["column_out"][number])
            rows = tuple(stacks[f"cell_{part}"][number] for part in ("qkv", "out", "up", "down"))
            h = layers[0](h, visible, stacks["cell_scale"][number] * scale, settings.heads, column, rows)
        summary = torch.cat([h[:, :, -1], h[:, :, :-1].mean(2)], -1)
        labels = F.pad(y, (0, x.shape[1] - y.shape[1]), value=settings.classes)
        h = normalise(summary) @ weights["row_in"] + look_up(weights["row_label"], labels)
        h = h + look_up(weights["metric"], metric)[:, None]
        for number in range(settings.row_layers):
            parts = tuple(stacks[f"row_{part}"][number] for part in ("qkv", "out", "up", "down"))
            h = layers[1](h, visible, stacks["row_scale"][number] * scale, settings.row_heads, parts)
        return self._read(normalise(h[:, y.shape[1] :].float()) @ self.head, y)

    def _embed(self, x: Tensor, y: Tensor, place: Tensor, visible: int, w: dict[str, Tensor], low: Any) -> Tensor:
        """Return the vectors of all cells ``(b, n, f + 1, d)``, the label last."""
        cells = describe_cells(x, visible).to(low) @ w["cell"] + (place.to(low) @ w["place"])[:, None]
        labels = F.pad(y, (0, x.shape[1] - y.shape[1]), value=self.settings.classes)
        return torch.cat([cells, look_up(w["label"], labels)[:, :, None]], 2)

    def _read(self, out: Tensor, y: Tensor) -> Output:
        """Add the log shares of the classes to the network's output."""
        counts = F.one_hot(y, self.settings.classes).sum(1)
        shares = (counts / y.shape[1]).clamp_min(SMALLEST_SHARE).log()
        logits = out[..., : self.settings.classes] + shares[:, None]
        return Output(logits, logits[..., 1] - logits[..., 0] + out[..., self.settings.classes])
