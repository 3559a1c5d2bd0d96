"""What all tests of the papers share."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: The networks of these tests are small and hardly trained, so that all their logits may lie in [0, 1].
SMALL_LOGITS = pytest.mark.filterwarnings("ignore:.*lie in .0, 1., as probabilities do:UserWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let small logits pass in tests below this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(SMALL_LOGITS)
