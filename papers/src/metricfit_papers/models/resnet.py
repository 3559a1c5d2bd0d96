"""ResNet-18 and ResNet-34 for small images.

He et al. 2016, "Deep Residual Learning for Image Recognition", basic blocks of Table 1, with the stem for 32 x 32
images that is common for CIFAR: one 3 x 3 convolution of stride 1 and no max-pooling. The networks are written here
because torchvision has no such stem, and cannot be installed together with the torch that this project is tested with.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from metricfit.errors import InvalidValueError
from metricfit_papers.models.normalisation import Norm, normalisation


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: the identity, or a 1 x 1 convolution where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        affine = norm == "none"
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=affine),
            normalisation(norm, channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=affine),
            normalisation(norm, channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=affine), normalisation(norm, channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(body + shortcut)."""
        total: Tensor = self.body(x) + self.shortcut(x)
        return total.relu()


class ResNet(nn.Module):
    """Four stages of basic blocks, 64 to 512 channels, then the mean over the image and a linear layer.

    Args:
        blocks: Number of blocks of each stage; `resnet18` and `resnet34` have the usual ones.
        in_channels: Number of channels of the images.
        out_features: Number of logits.
        norm: The normalisation; see `Norm`.

    Raises:
        ValueError: There are not four stages, or ``norm`` is unknown.

    Example:
        >>> ResNet((1, 1, 1, 1), in_channels=1)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 1])
    """

    def __init__(
        self, blocks: Sequence[int], in_channels: int = 3, out_features: int = 1, norm: Norm = "group"
    ) -> None:
        super().__init__()
        if len(blocks) != 4:
            raise InvalidValueError(
                f"ResNet has four stages; got the numbers of blocks of {len(blocks)}: {tuple(blocks)}"
            )
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, 64, 3, padding=1, bias=norm == "none"), normalisation(norm, 64), nn.ReLU()
        )
        stages, channels_in = [], 64
        for channels_out, stride, count in zip((64, 128, 256, 512), (1, 2, 2, 2), blocks, strict=True):
            stage = [_BasicBlock(channels_in, channels_out, stride, norm)]
            stage += [_BasicBlock(channels_out, channels_out, 1, norm) for _ in range(count - 1)]
            stages.append(nn.Sequential(*stage))
            channels_in = channels_out
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(512, out_features)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits of images.

        Args:
            x: Images ``(n, channels, height, width)``.

        Returns:
            Logits ``(n, out_features)``.
        """
        logits: Tensor = self.head(self.stages(self.stem(x)).mean((-2, -1)))
        return logits


def resnet18(in_channels: int = 3, out_features: int = 1, norm: Norm = "group") -> ResNet:
    """Build ResNet-18 for 32 x 32 images; it has 11,173,962 parameters with 3 channels and 10 outputs.

    Lee et al. use it, with ``norm="batch"``, on Fashion-MNIST repeated in three channels.

    Args:
        in_channels: Number of channels of the images.
        out_features: Number of logits.
        norm: The normalisation; see `Norm`.

    Returns:
        The network.

    Example:
        >>> sum(p.numel() for p in resnet18(out_features=10).parameters())
        11173962
    """
    return ResNet((2, 2, 2, 2), in_channels, out_features, norm)


def resnet34(in_channels: int = 3, out_features: int = 1, norm: Norm = "group") -> ResNet:
    """Build ResNet-34 for 32 x 32 images; it has 21,282,122 parameters with 3 channels and 10 outputs.

    Lee et al. use it on CIFAR-10.

    Args:
        in_channels: Number of channels of the images.
        out_features: Number of logits.
        norm: The normalisation; see `Norm`.

    Returns:
        The network.

    Example:
        >>> sum(p.numel() for p in resnet34(out_features=10).parameters())
        21282122
    """
    return ResNet((3, 4, 6, 3), in_channels, out_features, norm)
