"""Losses over pairs: ours beside LibAUC's on the same work, 40,000 samples of which half are positive.

``make bench-peers`` does the set-up and runs this. LibAUC's dependencies include torchvision, so it is installed
without them, in the peers' environment of ``segmentation_peers``; its losses import tqdm and scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.hinge_sums import all_pairs, beside_all_pairs
from benchmarks.passes import Loss
from benchmarks.rows import NotMeasuredHere, PeerGroup
from metricfit.losses import PairHingeLoss, PairSquareLoss


def losses() -> dict[str, Loss]:
    """Return the losses that are timed: the squared hinge, then the square loss."""
    theirs = _libauc()
    return {
        "LibAUC PairwiseAUCLoss, squared hinge": theirs.PairwiseAUCLoss(surr_loss="squared_hinge"),
        "all pairs, plain torch, squared hinge": all_pairs,
        "PairHingeLoss": PairHingeLoss(),
        "LibAUC PairwiseAUCLoss, square": theirs.PairwiseAUCLoss(surr_loss="squared"),
        "PairSquareLoss": PairSquareLoss(),
    }


def _libauc() -> Any:
    try:
        return importlib.import_module("libauc.losses.auc")
    except ImportError as lack:
        raise NotMeasuredHere(f"no LibAUC ({lack}): see `make bench-peers`") from None


ROWS = ()

PEERS = tuple(
    PeerGroup(f"pair-{name}-peers", f"a pass over the pairs of 40,000 samples, {name.upper()}, eager", device, measure)
    for name, device in (("cpu", "cpu"), ("gpu", "cuda"))
    for measure in [beside_all_pairs(losses, device)]
)
