"""The networks of the papers. All of them return logits and can be stacked with ``torch.func``."""

from metricfit_papers.models.augmentation import Centred, CropAndFlip
from metricfit_papers.models.darknet import TinyDarknet
from metricfit_papers.models.paper_mlps import anyloss_mlp, btg_mlp, multiclass_mlp, perceptron, study_mlp
from metricfit_papers.models.resnet import ResNet, resnet18, resnet34
from metricfit_papers.models.small_cnn import small_cnn

__all__ = [
    "Centred",
    "CropAndFlip",
    "ResNet",
    "TinyDarknet",
    "anyloss_mlp",
    "btg_mlp",
    "multiclass_mlp",
    "perceptron",
    "resnet18",
    "resnet34",
    "small_cnn",
    "study_mlp",
]
