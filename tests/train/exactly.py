"""Equality to the last bit."""

import torch


def assert_same(actual, expected, where="result"):
    """Equal to the bit: tensors by their bytes, numbers by their repr, so that NaN equals NaN and -0.0 is not 0.0."""
    assert isinstance(actual, type(expected)), where
    if isinstance(actual, dict):
        assert actual.keys() == expected.keys(), where
        for key in actual:
            assert_same(actual[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(actual, (list, tuple)):
        assert len(actual) == len(expected), where
        for index, pair in enumerate(zip(actual, expected, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif isinstance(actual, torch.Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), where
        as_bytes = [item.contiguous().reshape(-1).view(torch.uint8) for item in (actual, expected)]
        assert torch.equal(*as_bytes), where
    else:
        assert repr(actual) == repr(expected), where
