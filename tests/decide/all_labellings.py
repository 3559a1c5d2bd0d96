"""All labellings of a few pixels, and the expected metric of a mask over them: an oracle."""

import itertools

import torch

from metricfit import Counts


def all_labellings(pixels):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=pixels)), dtype=torch.float64)


def probability_of(labellings, probabilities):
    return torch.where(labellings.bool(), probabilities, 1 - probabilities).prod(1)


def expected(mask, probabilities, metric):
    truth = all_labellings(len(mask))
    tp, fp = (truth * mask).sum(1), ((1 - truth) * mask).sum(1)
    fn, tn = (truth * (1 - mask)).sum(1), ((1 - truth) * (1 - mask)).sum(1)
    values = metric(Counts(*(cell[:, None] for cell in (tp, fp, fn, tn)), exclusive=False))[:, 0]
    return float((values * probability_of(truth, probabilities)).sum())
