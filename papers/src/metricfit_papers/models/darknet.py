"""Tiny Darknet, the image network of "Bridging the Gap"."""

from __future__ import annotations

from torch import Tensor, nn

from metricfit_papers.models.normalisation import Norm, normalisation

# (kernel, filters) of each convolution; None is a 2 x 2 max-pool.
LAYERS = (
    *((3, 16), None, (3, 32), None),
    *((1, 16), (3, 128), (1, 16), (3, 128), None),
    *((1, 32), (3, 256), (1, 32), (3, 256), None),
    *((1, 64), (3, 512), (1, 64), (3, 512), (1, 128)),
)


class TinyDarknet(nn.Module):
    """Tiny Darknet: 16 small convolutions, four max-pools, and the mean over the image of a 1 x 1 convolution.

    The layers are as in Redmon's ``cfg/tiny.cfg`` (Darknet: open source neural networks in C, 2013-2016), with leaky
    ReLU of slope 0.1. Tsoi et al. 2022 (supplement 4.2) train the network on CIFAR-10. They publish no changes for
    32 x 32 images, so there are none here. Images need at least 16 x 16 pixels.

    Args:
        in_channels: Number of channels of the images.
        out_features: Number of logits.
        norm: The normalisation. The published network has "batch"; see `Norm` for why it is not the default.

    Example:
        >>> model = TinyDarknet(out_features=1000)
        >>> sum(p.numel() for p in model.parameters())
        1042104
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 1000])
    """

    def __init__(self, in_channels: int = 3, out_features: int = 1, norm: Norm = "group") -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for layer in LAYERS:
            if layer is None:
                layers.append(nn.MaxPool2d(2))
                continue
            kernel, filters = layer
            layers += [
                nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=norm == "none"),
                normalisation(norm, filters),
                nn.LeakyReLU(0.1),
            ]
            channels = filters
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(channels, out_features, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits of images.

        Args:
            x: Images ``(n, channels, height, width)``.

        Returns:
            Logits ``(n, out_features)``.
        """
        logits: Tensor = self.head(self.features(x))
        return logits.mean((-2, -1))
