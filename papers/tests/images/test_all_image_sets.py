"""What all image sets share: the message where they are missing, and the real files where they are present."""

import os
from pathlib import Path

import numpy as np
import pytest

from metricfit_papers.images import caltech256, cifar10, fashion_mnist


@pytest.mark.parametrize("load", [cifar10, fashion_mnist, caltech256])
def test_missing_files_are_reported_with_what_to_download_and_where_to_put_it(tmp_path, load):
    with pytest.raises(
        FileNotFoundError,
        match=r"is not in .* Download .* https://.*(there|raw), or run: metricfit datasets --fetch \w+ --data ",
    ):
        load(tmp_path)


REAL = Path(os.environ.get("METRICFIT_DATA", "nowhere")) / "images"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="METRICFIT_DATA names no folder with images")
def test_the_real_files():
    fashion = fashion_mnist(REAL.parent)
    assert fashion.whole
    assert np.bincount(fashion.train.labels).tolist() == [6000] * 10
    assert round(fashion.train.pixels.mean() / 255, 4) == 0.2860  # the published mean
    cifar = cifar10(REAL.parent)
    assert np.bincount(cifar.test.labels).tolist() == [1000] * 10
    assert cifar.train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    # Neighbours in a picture are alike; a mosaic cut at the wrong places would not be.
    first = cifar.train.pixels[0].astype(float)
    assert np.abs(np.diff(first, axis=-1)).mean() < 25
    assert len(cifar.train) in (20_000, 50_000)
