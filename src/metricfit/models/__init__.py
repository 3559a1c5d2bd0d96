"""Networks for tables. All return logits and can be stacked with ``torch.func``."""

from typing import TYPE_CHECKING

from metricfit._moved import moved_names
from metricfit.models.blend import Blend
from metricfit.models.dense import mlp
from metricfit.models.embeddings import embedded_mlp, piecewise_linear, quantile_bins
from metricfit.models.members import PerMember
from metricfit.models.tabm import TabM

__all__ = [
    "Blend",
    "PerMember",
    "TabM",
    "embedded_mlp",
    "mlp",
    "piecewise_linear",
    "quantile_bins",
]

MOVED = {
    name: f"metricfit_papers.models.{name}"
    for name in (
        *("Centred", "CropAndFlip", "ResNet", "TinyDarknet", "btg_mlp", "multiclass_mlp", "perceptron"),
        *("resnet18", "resnet34", "small_cnn", "study_mlp"),
    )
} | {"norms": "metricfit_papers.models.normalisation", "periodic": "rtdl_num_embeddings.PeriodicEmbeddings"}
if not TYPE_CHECKING:  # type checkers report moved names as unknown
    __getattr__ = moved_names(__name__, MOVED)
