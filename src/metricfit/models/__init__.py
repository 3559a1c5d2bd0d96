"""Networks: the papers' and the strong tabular one. All give logits and can be stacked with ``torch.func``."""

from metricfit.models.blend import Blend
from metricfit.models.convolutional import small_cnn
from metricfit.models.darknet import TinyDarknet
from metricfit.models.dense import btg_mlp, mlp, multiclass_mlp, perceptron, study_mlp
from metricfit.models.embeddings import embedded_mlp, periodic, piecewise_linear, quantile_bins
from metricfit.models.members import PerMember
from metricfit.models.pictures import Centred, CropAndFlip
from metricfit.models.resnet import ResNet, resnet18, resnet34
from metricfit.models.tabm import TabM

__all__ = [
    "Blend",
    "Centred",
    "CropAndFlip",
    "PerMember",
    "ResNet",
    "TabM",
    "TinyDarknet",
    "btg_mlp",
    "embedded_mlp",
    "mlp",
    "multiclass_mlp",
    "perceptron",
    "periodic",
    "piecewise_linear",
    "quantile_bins",
    "resnet18",
    "resnet34",
    "small_cnn",
    "study_mlp",
]
