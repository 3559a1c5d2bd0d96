"""The dependencies: a release needs the metricfit of the same release, because it uses parts that are not public."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.version import Version

OTHERS = ("clarabel>=0.11", "pillow>=10.2", "tomli>=2.0; python_version < '3.11'")


class Dependencies(MetadataHookInterface):
    """Adds metricfit, in the same version if this is a release."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write the dependencies into the metadata."""
        version = Version(metadata["version"])
        same = "" if version.is_devrelease else f"=={version.public}"
        metadata["dependencies"] = [f"metricfit[cli,torch]{same}", *OTHERS]
