"""The in-context classifier with NumPy alone: the same function as ``network.py``.

The labelled rows are the context. Nothing is fitted: their vectors are computed together with the vectors of the rows
to predict. Cost for n rows of k columns: 2 n (k + 1) (12 d² + 2 m d) operations per cell layer, where m is the number
of rows that may be looked at and d the width; 1,000 rows of 10 columns with the default sizes take 50 GFLOP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]
#: As in ``network.py``; a test compares them.
METRICS = ("log_loss", "f1", "fbeta(beta=2)", "mcc", "gmean", "cost(fp=1, fn=10)")
WAVES = 5
SMALLEST_SHARE = 1e-6
#: Of more columns, those with the largest difference between the classes are taken.
MOST_COLUMNS = 100


def describe_cells(x: Floats, visible: int) -> Floats:
    """Describe each cell ``(n, f)`` by numbers ``(n, f, inputs)``; see ``network.describe_cells``."""
    result = np.zeros((*x.shape, 4 + 2 * WAVES), dtype=np.float32)
    for column in range(x.shape[1]):
        values = x[:, column]
        known = np.sort(values[:visible][~np.isnan(values[:visible])])
        missing = np.isnan(values)
        result[missing, column, 3] = 1
        if not len(known) or missing.all():
            continue
        here = values[~missing]
        mean = known.mean(dtype=np.float64)
        spread = math.sqrt(np.square(known - mean).mean(dtype=np.float64)) + 1e-6
        z = (here - mean) / spread
        below, up_to = np.searchsorted(known, here, "left"), np.searchsorted(known, here, "right")
        rank = (below + up_to) / len(known) - 1
        angles = math.pi / 2 * rank[:, None] * 2.0 ** np.arange(WAVES)
        waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(here), -1)
        described = [np.sign(z) * np.log1p(np.abs(z)), rank, (up_to - below) / len(known), np.zeros(len(here))]
        result[~missing, column] = np.concatenate([np.stack(described, -1), waves], 1)
    return result


def normalise(x: Floats) -> Floats:
    """Divide by the root mean square of the last axis."""
    mean = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
    return np.asarray(x / np.sqrt(mean + np.float32(1e-6)))


def softmax(logits: Floats) -> Floats:
    """Exponentials that sum to 1 over the last axis; the input is overwritten."""
    logits -= logits.max(-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(-1, keepdims=True)
    return logits


def feed_forward(x: Floats, up: Floats, down: Floats) -> Floats:
    """Return the change by a hidden layer with GELU in the form of tanh."""
    h = normalise(x) @ up
    cube = h * h * h
    cube *= np.float32(0.044715)
    cube += h
    cube *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(cube, out=cube)
    cube += 1
    cube *= h
    cube *= np.float32(0.5)
    return np.asarray(cube @ down)


def attend(query: Floats, key: Floats, value: Floats, scale: Floats) -> Floats:
    """Attention of ``(n, h, e)`` to ``(m, h, e)``, one head at a time to keep memory small."""
    result = np.empty_like(query)
    root = np.float32(query.shape[2] ** -0.5)
    for head in range(query.shape[1]):
        logits = (query[:, head] * (scale[head] * root)) @ key[:, head].T
        result[:, head] = softmax(logits) @ value[:, head]
    return result


@dataclass(frozen=True)
class InContext:
    """A network as read from a file.

    Attributes:
        weights: Its weights by name, float32.
        settings: Its sizes by name.
    """

    weights: dict[str, Floats]
    settings: dict[str, int]

    @classmethod
    def load(cls, path: Path) -> InContext:
        """Read ``path.safetensors`` and ``path.json``."""
        stored = load_file(path.with_suffix(".safetensors"))
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return cls({name: value.astype(np.float32) for name, value in stored.items()}, about["settings"])

    def logits(
        self,
        x: NDArray[np.float64],
        y: NDArray[np.int64],
        new: NDArray[np.float64],
        *,
        metric: str | None = None,
        unlabelled: int = 0,
        seed: int = 0,
    ) -> NDArray[np.float64]:
        """Return the logit of the positive class for each new row.

        Args:
            x: Columns of the labelled rows; NaN is missing.
            y: Their labels, 0 or 1.
            new: Columns of the rows to predict.
            metric: The metric that the network is asked to decide for; None for cross-entropy alone.
            unlabelled: How many of the new rows, from the first, the network may look at.
            seed: Seed of the random vectors of columns.
        """
        kept = choose_columns(x, y)
        table = np.concatenate([x[:, kept], new[:, kept]]).astype(np.float32)
        place = draw_places(len(kept), self.settings["places"], [seed])[0]
        number = METRICS.index(metric or METRICS[0])
        logits, _ = self.forward(table, y, place, number, len(y) + min(unlabelled, len(new)))
        return np.asarray(logits[:, 1] - logits[:, 0], dtype=np.float64)

    def forward(
        self, x: Floats, y: NDArray[np.int64], place: Floats, metric: int, visible: int
    ) -> tuple[Floats, Floats]:
        """Compute ``network.Network.forward`` for one table; return the logits of classes, and of decisions."""
        w, classes = self.weights, self.settings["classes"]
        scale = np.float32(math.log(visible) / math.log(200))
        labels = np.concatenate([y, np.full(len(x) - len(y), classes, dtype=np.int64)])
        cells = describe_cells(x, visible) @ w["cell"] + place @ w["place"]
        h = np.concatenate([cells, w["label"][labels][:, None]], 1)
        for layer in range(self.settings["cell_layers"]):
            h = self._mix_columns(h, layer)
            h = self._mix(h, visible, "cell", layer, scale)
        rows = normalise(np.concatenate([h[:, -1], h[:, :-1].mean(1)], -1)) @ w["row_in"]
        h = (rows + w["row_label"][labels] + w["metric"][metric])[:, None]
        for layer in range(self.settings["row_layers"]):
            h = self._mix(h, visible, "row", layer, scale)
        out = normalise(h[len(y) :, 0]) @ w["head"]
        shares = np.bincount(y, minlength=classes) / len(y)
        logits = out[:, :classes] + np.log(np.maximum(shares, SMALLEST_SHARE)).astype(np.float32)
        return logits, logits[:, 1] - logits[:, 0] + out[:, classes]

    def _mix_columns(self, x: Floats, layer: int) -> Floats:
        """Mix the cells ``(n, k, d)`` of each row."""
        n, k, d = x.shape
        heads = self.settings["heads"]
        y = normalise(x)
        query, key, value = (
            (y @ matrix).reshape(n, k, heads, -1).transpose(0, 2, 1, 3) for matrix in self.weights["column_qkv"][layer]
        )
        logits = (query * np.float32((d // heads) ** -0.5)) @ key.transpose(0, 1, 3, 2)
        mixed = softmax(logits) @ value
        return np.asarray(x + mixed.transpose(0, 2, 1, 3).reshape(n, k, d) @ self.weights["column_out"][layer])

    def _mix(self, x: Floats, visible: int, kind: str, layer: int, scale: Floats | np.float32) -> Floats:
        """Mix the rows of each column of ``(n, k, d)``, and apply the hidden layer."""
        n, k, d = x.shape
        heads = self.settings["heads" if kind == "cell" else "row_heads"]
        qkv, out, up, down = (self.weights[f"{kind}_{part}"][layer] for part in ("qkv", "out", "up", "down"))
        y = normalise(x)
        query = (y @ qkv[0]).reshape(n, k * heads, -1)
        key, value = ((y[:visible] @ matrix).reshape(visible, k * heads, -1) for matrix in qkv[1:])
        scales = np.tile(self.weights[f"{kind}_scale"][layer] * scale, k)
        x = x + attend(query, key, value, scales).reshape(n, k, d) @ out
        return np.asarray(x + feed_forward(x, up, down))


def draw_places(columns: int, length: int, seeds: Iterable[int]) -> Floats:
    """Draw the random vectors of columns ``(seeds, columns, length)``."""
    drawn = [np.random.default_rng(seed).standard_normal((columns, length)) for seed in seeds]
    return np.stack(drawn).astype(np.float32)


def choose_columns(x: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns to use: those that vary, at most ``MOST_COLUMNS`` by the difference of the classes' means."""
    spread = np.nanstd(x, axis=0)
    varies = np.flatnonzero(spread > 0)
    if not len(varies):
        raise ValueError("every column is constant in the labelled rows; add a column that differs between rows")
    if len(varies) <= MOST_COLUMNS:
        return varies
    difference = np.abs(np.nanmean(x[y == 1][:, varies], 0) - np.nanmean(x[y != 1][:, varies], 0)) / spread[varies]
    return np.sort(varies[np.argsort(-np.nan_to_num(difference), kind="stable")[:MOST_COLUMNS]])
