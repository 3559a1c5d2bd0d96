"""What was tried for bars that are missed, by the name of the bar; the page of results shows it beside the miss."""

from __future__ import annotations

TRIED: dict[str, str] = {}
