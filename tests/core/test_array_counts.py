"""Hard counts of NumPy arrays are those of tensors, and arrays of another library's kind are refused."""

import numpy as np
import pytest
import torch

from metricfit import Counts, metrics
from metricfit.core.decisions import count_hard
from metricfit.core.settings import CountSettings

RNG = np.random.default_rng(0)
N = 60
WEIGHT, GROUP = RNG.random(N), RNG.integers(0, 3, N)
BINARY = 9 * RNG.normal(size=N), (RNG.random(N) < 0.4).astype(int)
CLASSES = RNG.normal(size=(N, 4)), RNG.integers(0, 4, N)
SHARES = CLASSES[0], RNG.dirichlet([1, 1, 1, 1], N)
LABELS = CLASSES[0], (RNG.random((N, 4)) < 0.5).astype(int)
IMAGES = RNG.normal(size=(5, 3, 6, 7)), RNG.integers(0, 3, (5, 6, 7))
PIXELS = RNG.random((5, 6, 7))

ROWS = [{}, {"weight": WEIGHT}, {"group": GROUP}, {"group": GROUP, "weight": WEIGHT}]
CASES = [
    *((BINARY, settings) for settings in ROWS),
    *((BINARY, {"threshold": threshold}) for threshold in (0.3, 1 - 1e-10, [0.1, 0.9], 0, 2)),
    (BINARY, {"ignore_index": 1}),
    *((CLASSES, settings) for settings in [*ROWS, {"ignore_index": 2}]),
    *((SHARES, {"task": "multiclass", **settings}) for settings in ROWS),
    *((LABELS, settings) for settings in [*ROWS, {"threshold": metrics.PerLabel([0.1, 0.5, 0.3, 0.9])}]),
    *((IMAGES, settings) for settings in [{}, {"per_image": True}, {"ignore_index": 1}]),
    (IMAGES, {"weight": PIXELS, "per_image": True}),
    (IMAGES, {"group": np.array([0, 1, 1, 0, 2])}),
]


def as_tensors(settings):
    return {key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in settings.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("batch", "settings"), CASES)
def test_arrays_are_counted_as_tensors_are(batch, settings, dtype):
    logits, target = batch[0].astype(dtype), batch[1]
    found = Counts.hard(logits, target, **settings)
    expected = Counts.hard(torch.from_numpy(logits), torch.from_numpy(target), **as_tensors(settings))
    assert found.exclusive == expected.exclusive
    for cell, other in zip(found, expected, strict=True):
        assert isinstance(cell, np.ndarray)
        assert cell.dtype == np.float64
        np.testing.assert_allclose(cell, other.numpy(), rtol=1e-14)


@pytest.mark.parametrize(("batch", "per_image"), [(CLASSES, False), (SHARES, False), (IMAGES, False), (IMAGES, True)])
def test_confusion_matrices_of_arrays_are_those_of_tensors(batch, per_image):
    settings = CountSettings(task="multiclass", per_image=per_image)
    found = count_hard(*batch, settings, matrix=True)
    expected = count_hard(*map(torch.from_numpy, batch), settings, matrix=True)
    np.testing.assert_allclose(found.matrix, expected.matrix.numpy(), rtol=1e-14)
    np.testing.assert_allclose(found.tn, expected.tn.numpy(), rtol=1e-12)


@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_labels_in_arrays_are_counted_as_in_tensors(num_classes, weight):
    classes = num_classes or 2
    predicted, target = RNG.integers(0, classes, N), RNG.integers(0, classes, N)
    found = Counts.from_labels(predicted, target, num_classes=num_classes, weight=weight)
    tensors = torch.from_numpy(predicted), torch.from_numpy(target)
    weights = None if weight is None else torch.from_numpy(weight)
    expected = Counts.from_labels(*tensors, num_classes=num_classes, weight=weights)
    assert all(isinstance(cell, np.ndarray) for cell in found)
    assert all(isinstance(cell, torch.Tensor) for cell in expected)
    for cell, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(cell, other.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Counts.hard(BINARY[0], list(BINARY[1])), "so target must be an array of numbers, got list"),
        (lambda: Counts.hard(BINARY[0], BINARY[1].astype(str)), "so target must be an array of numbers, got <U"),
        (lambda: Counts.hard(BINARY[0], torch.from_numpy(BINARY[1])), r"use torch\.as_tensor\(logits\)"),
        (lambda: Counts.hard(BINARY[1], BINARY[1]), "logits must be floating point, got int64"),
        (lambda: Counts.soft(*BINARY), "logits must be a torch tensor, got ndarray"),
        (lambda: Counts.hard(BINARY[0] * np.nan, BINARY[1]), "60 of 60 logits are NaN"),
        (lambda: Counts.hard(CLASSES[0], CLASSES[1] + 9), "4 classes need labels 0 to 3"),
        (lambda: Counts.hard(BINARY[0], BINARY[1], weight=-WEIGHT), "weights must be finite and at least 0"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
