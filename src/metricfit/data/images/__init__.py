"""Image sets, read from files as their origins pack them. Needs the extra ``images``; torchvision is not needed."""

from metricfit.data.images.caltech256 import caltech256
from metricfit.data.images.cifar10 import cifar10
from metricfit.data.images.fashion_mnist import fashion_mnist
from metricfit.data.images.files import BadImageFile
from metricfit.data.images.image_set import Images, ImageSet

__all__ = ["BadImageFile", "ImageSet", "Images", "caltech256", "cifar10", "fashion_mnist"]
