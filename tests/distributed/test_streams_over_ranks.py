"""Streams that two processes read in parts have the value of the whole stream."""

import pytest
import torch
from two_processes import found_by_ranks

from metricfit.errors import InvalidStateError, InvalidValueError
from metricfit.metrics import Accumulator, BinnedScores

LOGITS = torch.randn(40, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([1, 0, 0, 1, 0] * 8)
Z = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
Y = torch.arange(40) % 3


def values(rank):
    rows = slice(0, 25) if rank == 0 else slice(25, 40)
    return {
        "parts": measure(LOGITS[rows], TARGET[rows]),
        "classes": measure_classes([(Z[rows], Y[rows])]),
        "rank 1 without a batch": measure(LOGITS, TARGET) if rank == 0 else measure(),
        "classes, rank 0 without a batch": measure_classes([(Z, Y)] if rank == 1 else []),
        "messages": messages(rank),
    }


def measure(*batch):
    quality, scores = Accumulator("f1"), BinnedScores()
    for stream in (quality, scores):
        if batch:
            stream.update(*batch)
        stream.sync()
    return quality.compute().item(), scores.auroc().item()


def measure_classes(batches):
    """The weighted kappa needs the whole confusion matrix."""
    quality, scores = Accumulator("weighted_kappa(power=2)"), BinnedScores()
    for stream in (quality, scores):
        for batch in batches:
            stream.update(*batch)
        stream.sync()
    return quality.compute().item(), *scores.auroc().tolist()


def messages(rank):
    """On both ranks, so that neither waits for the other."""
    nothing, other = Accumulator("f1"), BinnedScores(bins=8 + rank)
    other.update(LOGITS, TARGET)
    caught = []
    for stream in (nothing, other):
        try:
            stream.sync()
        except (InvalidStateError, InvalidValueError) as error:
            caught.append(str(error))
    return caught


def test_sync_adds_the_parts(tmp_path):
    whole, of_classes = measure(LOGITS, TARGET), measure_classes([(Z, Y)])
    for found in found_by_ranks(values, tmp_path):
        for name in ("parts", "rank 1 without a batch"):
            assert found[name] == pytest.approx(whole, abs=1e-12)
        for name in ("classes", "classes, rank 0 without a batch"):
            assert found[name] == pytest.approx(of_classes, abs=1e-12)
        assert "has seen no batch" in found["messages"][0]
        assert "(2, 1, 8) and (2, 1, 9)" in found["messages"][1]
