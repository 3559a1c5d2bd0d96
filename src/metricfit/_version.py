"""The version: of a tag v0.2.0 it is 0.2.0, of any other commit it names the commit, as in 0.2.1.dev3+g1a2b3c4."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("metricfit")
except PackageNotFoundError:  # a checkout on the path that was not installed
    __version__ = "0+unknown"
