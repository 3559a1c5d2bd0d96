"""Image sets, read from the files that their publishers distribute. Nothing is downloaded."""

from metricfit_papers.images.caltech256 import caltech256
from metricfit_papers.images.cifar10 import cifar10
from metricfit_papers.images.fashion_mnist import fashion_mnist
from metricfit_papers.images.image_files import BadImageFile
from metricfit_papers.images.image_set import Images, ImageSet

__all__ = ["BadImageFile", "ImageSet", "Images", "caltech256", "cifar10", "fashion_mnist"]
