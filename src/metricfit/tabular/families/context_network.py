"""metricfit's own in-context network: it classifies rows of a table it has never seen, with NumPy alone.

The labelled rows are the context. Nothing is fitted: their vectors are computed together with the vectors of the rows
to predict. ``studies/in_context`` made the tables that it learned from and trained it; ``network.py`` there is the same
function in torch. Cost for n rows of k columns: 2 n (k + 1) (12 d² + 2 m d) operations per cell layer, where m is the
number of labelled rows and d the width; 1,000 rows of 10 columns take 50 GFLOP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]
#: The shipped weights, float16; their metadata are the sizes of the network and what it saw.
WEIGHTS = Path(__file__).with_suffix(".safetensors")
WAVES = 5
SMALLEST_SHARE = 1e-6
#: Of more columns, those with the largest difference between the classes are taken.
MOST_COLUMNS = 100


def read_metadata(path: Path, key: str) -> Any:
    """Return what a safetensors file holds as metadata, as JSON."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return json.loads(header["__metadata__"][key])


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


class ContextNetwork:
    """A network as read from a file.

    Attributes:
        weights: Its weights by name, float32.
        settings: Its sizes by name.
    """

    def __init__(self, weights: dict[str, Floats], settings: dict[str, int]) -> None:
        self.weights, self.settings = weights, settings

    def forward(self, x: Floats, y: NDArray[np.int64], place: Floats) -> Floats:
        """Return the logits of all classes for the rows of ``x`` that follow the labelled ones."""
        w, classes, visible = self.weights, self.settings["classes"], len(y)
        scale = np.float32(math.log(visible) / math.log(200))
        labels = np.concatenate([y, np.full(len(x) - len(y), classes, dtype=np.int64)])
        cells = describe_cells(x, visible) @ w["cell"] + place @ w["place"]
        h = np.concatenate([cells, w["label"][labels][:, None]], 1)
        for layer in range(self.settings["cell_layers"]):
            h = self._mix_columns(h, layer)
            h = self._mix(h, visible, "cell", layer, scale)
        rows = normalise(np.concatenate([h[:, -1], h[:, :-1].mean(1)], -1)) @ w["row_in"]
        h = (rows + w["row_label"][labels] + w["metric"][0])[:, None]  # 0: cross-entropy
        for layer in range(self.settings["row_layers"]):
            h = self._mix(h, visible, "row", layer, scale)
        out = normalise(h[len(y) :, 0]) @ w["head"]
        shares = np.bincount(y, minlength=classes) / len(y)
        return np.asarray(out[:, :classes] + np.log(np.maximum(shares, SMALLEST_SHARE)).astype(np.float32))

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


@cache
def read_network(path: Path = WEIGHTS) -> ContextNetwork:
    """Read a file of weights, once per process."""
    weights = {name: value.astype(np.float32) for name, value in load_file(path).items()}
    return ContextNetwork(weights, read_metadata(path, "settings"))


class ContextClassifier:
    """The network with labelled rows as its context, in the manner of scikit-learn; for two classes.

    Args:
        path: The file of weights.
        members: Random vectors of columns, whose logits are averaged.
        seed: Seed of the first.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> model = ContextClassifier(WEIGHTS).fit(x[:30], (x[:30, 0] > 0).astype(int))
        >>> model.predict_proba(x[30:]).shape
        (10, 2)
    """

    def __init__(self, path: Path, members: int = 1, seed: int = 0) -> None:
        self.network, self.seeds = read_network(path), range(seed, seed + members)

    def fit(self, x: NDArray[Any], y: NDArray[np.int64]) -> ContextClassifier:
        """Take the rows as context."""
        self.classes_ = np.arange(2)
        self.columns = choose_columns(x, y)
        self.x, self.y = x[:, self.columns].astype(np.float32), y
        return self

    def predict_proba(self, new: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probabilities of both classes; without a column that differs, the shares of the context."""
        if not len(self.columns):
            return np.tile(np.bincount(self.y, minlength=2) / len(self.y), (len(new), 1))
        table = np.concatenate([self.x, new[:, self.columns].astype(np.float32)])
        places = draw_places(len(self.columns), self.network.settings["places"], self.seeds)
        several = [self.network.forward(table, self.y, place) for place in places]
        logits = np.asarray(np.mean(several, axis=0, dtype=np.float64))
        positive = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
        return np.stack([1 - positive, positive], 1)


def draw_places(columns: int, length: int, seeds: Iterable[int]) -> Floats:
    """Draw the random vectors of columns ``(seeds, columns, length)``."""
    drawn = [np.random.default_rng(seed).standard_normal((columns, length)) for seed in seeds]
    return np.stack(drawn).astype(np.float32)


def choose_columns(x: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns that vary, at most ``MOST_COLUMNS`` by the difference of the classes' means."""
    spread = np.asarray(np.nanstd(x, axis=0))
    varies = np.flatnonzero(spread > 0)
    if len(varies) <= MOST_COLUMNS:
        return varies
    difference = np.abs(np.nanmean(x[y == 1][:, varies], 0) - np.nanmean(x[y != 1][:, varies], 0)) / spread[varies]
    return np.sort(varies[np.argsort(-np.nan_to_num(difference), kind="stable")[:MOST_COLUMNS]])
