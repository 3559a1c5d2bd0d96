"""Ways in which a file of a run can be damaged."""

from __future__ import annotations

from hashlib import sha256

import torch

from metricfit.train.checkpoint.state import pack


def damage(path, how):
    """Damage a checkpoint; its path afterwards, which keeps the form of a checkpoint's name."""
    content = path.read_bytes()
    at = len(content) - 7
    broken = {
        "truncated": content[: len(content) // 2],
        "flipped": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        "flipped header": content[:20] + bytes([content[20] ^ 4]) + content[21:],
        "zeros": bytes(len(content)),
        "half zeros": content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
        "empty": b"",
        "longer": content + b"\0",
        "garbage with its hash": b"no checkpoint at all",
        "truncated with its hash": content[: len(content) // 2],
        "nothing with its hash": b"",
        "other state with its hash": pack({"weights": torch.ones(2)}),
        "plain values with their hash": pack({"loop": 1, "history": [], "learner": {}, "random": []}),
    }[how]
    path.write_bytes(broken)
    if "hash" not in how:
        return path
    return path.rename(path.with_name(f"{path.name[:16]}{sha256(broken).hexdigest()[:16]}.safetensors"))


DAMAGES = [
    "truncated",
    "flipped",
    "flipped header",
    "zeros",
    "half zeros",
    "empty",
    "longer",
    "garbage with its hash",
    "truncated with its hash",
    "nothing with its hash",
    "other state with its hash",
    "plain values with their hash",
]
