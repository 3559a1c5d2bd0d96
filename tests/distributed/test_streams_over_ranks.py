"""Streams that two processes read in parts have the value of the whole stream."""

import pytest
import torch
from two_processes import found_by_ranks

from metricfit.metrics import Accumulator, BinnedScores

LOGITS = torch.randn(40, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([1, 0, 0, 1, 0] * 8)


def values(rank):
    rows = slice(0, 25) if rank == 0 else slice(25, 40)
    quality, scores = Accumulator("f1"), BinnedScores()
    for stream in (quality, scores):
        stream.update(LOGITS[rows], TARGET[rows])
        stream.sync()
    return quality.compute().item(), scores.auroc().item()


def test_sync_adds_the_parts(tmp_path):
    quality, scores = Accumulator("f1"), BinnedScores()
    for stream in (quality, scores):
        stream.update(LOGITS, TARGET)
    whole = (quality.compute().item(), scores.auroc().item())
    for found in found_by_ranks(values, tmp_path):
        assert found == pytest.approx(whole, abs=1e-12)
