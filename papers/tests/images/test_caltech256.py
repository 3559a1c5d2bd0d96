"""Caltech-256, from a tiny folder of the same layout."""

import numpy as np
import pytest
from PIL import Image

from metricfit_papers.images import BadImageFile, caltech256

RNG = np.random.default_rng(0)


def test_caltech256_is_read_from_one_folder_per_class(tmp_path):
    colours = {"001.ak47": 10, "002.bat": 200}
    for name, value in colours.items():
        where = tmp_path / "256_ObjectCategories" / name
        where.mkdir(parents=True)
        for number in range(5):
            Image.fromarray(np.full((6 + number, 9, 3), value, np.uint8)).save(where / f"{number:04d}.png")
        (where / "notes.txt").write_text("not a picture", encoding="utf-8")
    found = caltech256(tmp_path, side=4)
    assert found.classes == ("ak47", "bat")
    assert found.train.pixels.shape == (8, 3, 4, 4)
    assert found.test.labels.tolist() == [0, 1]
    for part in (found.train, found.test):
        np.testing.assert_array_equal(part.pixels.min((1, 2, 3)), np.array([10, 200])[part.labels])
    (tmp_path / "256_ObjectCategories" / "003.none").mkdir()
    with pytest.raises(FileNotFoundError, match=r"003.none has no pictures"):
        caltech256(tmp_path)


def test_caltech256_refuses_invalid_shares_sides_and_folders(tmp_path):
    for name in ("001.ak47", "002.bat"):
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.fromarray(np.zeros((6, 9, 3), np.uint8)).save(tmp_path / name / f"{number:04d}.png")
    for share in (2.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=rf"test_share must be from 0 to less than 1.* got {share}"):
            caltech256(tmp_path, test_share=share)
    with pytest.raises(
        ValueError, match=r"test_share 0.95 takes all 5 pictures of .*001.ak47.* choose a smaller share"
    ):
        caltech256(tmp_path, test_share=0.95)
    with pytest.raises(ValueError, match=r"side is the width .* got 0"):
        caltech256(tmp_path, side=0)
    assert len(caltech256(tmp_path, test_share=0, side=2).train) == 10
    (tmp_path / "3").mkdir()
    with pytest.raises(BadImageFile, match=r"3 is a number without a name; give it a name such as 001.ak47"):
        caltech256(tmp_path)


def test_a_folder_with_a_number_for_a_name_is_not_caltech256(tmp_path):
    (tmp_path / "3").mkdir()
    with pytest.raises(FileNotFoundError, match="Caltech-256 is not in"):
        caltech256(tmp_path)
