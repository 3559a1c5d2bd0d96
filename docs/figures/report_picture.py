"""Photograph the page of ``make demo``, in light colours, for the README and the documentation. Needs Chromium.

make demo && python docs/figures/report_picture.py
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "demo-report" / "report.html"
WIDTH = 940
#: The element each picture begins with, and the one it ends with.
PICTURES = {
    "report": ("body", "nav"),
    "comparison": ("#section1 h2", "#section1 figure"),
    "explorer": (".explorer", ".explorer .prices"),
}
MARGIN = 16


def photograph(page: Page, first: str, last: str) -> Image.Image:
    """From the top of one element to the bottom of another, over the whole width."""
    boxes = [page.locator(each).first.bounding_box() for each in (first, last)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    top = max(boxes[0]["y"] - MARGIN, 0)
    height = boxes[1]["y"] + boxes[1]["height"] + MARGIN - top
    picture = page.screenshot(full_page=True, clip={"x": 0, "y": top, "width": WIDTH, "height": height})
    return Image.open(io.BytesIO(picture)).convert("RGB")


def main() -> None:
    if not PAGE.exists():
        raise SystemExit(f"there is no {PAGE.relative_to(ROOT)}: run make demo first")
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=1.5, color_scheme="light")
        page.goto(PAGE.as_uri())
        for name, (first, last) in PICTURES.items():
            photograph(page, first, last).save(ROOT / "docs" / "img" / f"{name}.webp", quality=82, method=6)
        browser.close()


if __name__ == "__main__":
    main()
