"""What to install where a package of the extra ``train`` is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

PACKAGES = ("lightning_fabric", "safetensors", "rich")


@contextmanager
def told_what_to_install() -> Iterator[None]:
    """Around imports: a missing package of the extra is told with its remedy.

    >>> with told_what_to_install():
    ...     raise ModuleNotFoundError(name="safetensors.torch")
    Traceback (most recent call last):
    ModuleNotFoundError: training needs the package safetensors.torch: pip install metricfit[train]
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(
                f"training needs the package {error.name}: pip install metricfit[train]", name=error.name
            ) from error
        raise
