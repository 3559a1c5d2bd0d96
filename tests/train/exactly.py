"""Equality to the last bit."""

import torch


def assert_same(found, expected, where="result"):
    """Equal to the bit: tensors by their bytes, numbers by their repr, so that NaN equals NaN and -0.0 is not 0.0."""
    assert isinstance(found, type(expected)), where
    if isinstance(found, dict):
        assert found.keys() == expected.keys(), where
        for key in found:
            assert_same(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(found, (list, tuple)):
        assert len(found) == len(expected), where
        for at, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, f"{where}[{at}]")
    elif isinstance(found, torch.Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
        as_bytes = [each.contiguous().reshape(-1).view(torch.uint8) for each in (found, expected)]
        assert torch.equal(*as_bytes), where
    else:
        assert repr(found) == repr(expected), where
