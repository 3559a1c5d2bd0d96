"""The commands' own pages in Chromium: what the page shows is what ``evaluate --json`` prints, and data is text."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

pytestmark = pytest.mark.browser

EVIL = "<script>alert(1)</script>"
POSITIVE, NEGATIVE = """say "yes" & <b>""", "'no' <img src=x onerror=alert(2)>"
SMALL = ["--models", "linear,extra_trees", "--folds", "2", "--quiet", "--json"]
SMALL_COMPARISON = ["--method", "logistic regression", "--quiet", "--json"]


def call(*arguments):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    r = np.random.default_rng(0)
    frame = pd.DataFrame(r.normal(size=(240, 3)), columns=["a", "<i>b</i>", "c"])
    frame[EVIL] = np.where(frame["a"] + 0.6 * r.normal(size=240) > 1, POSITIVE, NEGATIVE)
    path = tmp_path_factory.mktemp("commands") / "a 'b' <c>.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(data):
    return call("fit", data, "--target", EVIL, "--out", data.parent / "fitted", *SMALL)


@pytest.fixture(scope="module")
def judge(data, fitted):
    def evaluate(*options):
        printed = call("evaluate", fitted["model"], data, "--target", EVIL, "--json", *options)
        return printed | {name: measured["value"] for name, measured in printed["metrics"].items()}

    return evaluate


@pytest.fixture(scope="module")
def evaluation(data, judge):
    page = data.parent / "page.html"
    return page, judge("--report", page)


def in_page(page):
    """The threshold in effect and the numbers that go with it, from the page."""
    shown = page.eval_on_selector_all(
        ".explorer [data-count], .explorer .metrics [data-metric]",
        "all => all.map(e => [e.dataset.count || e.dataset.metric, Number(e.getAttribute('value'))])",
    )
    return page.locator(".effect").get_attribute("value"), dict(shown)


def test_the_page_opens_with_what_evaluate_prints(opened, evaluation):
    path, printed = evaluation
    threshold, shown = in_page(opened(path))
    assert float(threshold) == printed["threshold"]
    assert {name: printed[name] for name in shown if name in printed} == {
        name: value for name, value in shown.items() if name in printed
    }
    assert {"tp", "fp", "fn", "tn", "f1", "mcc"} <= set(shown) & set(printed)


def test_at_every_slider_position_the_page_shows_what_evaluate_prints(opened, evaluation, judge):
    page = opened(evaluation[0])
    seen = set()
    slider = page.get_by_role("slider", name="Threshold")
    for place in ("0", "0.137", "0.5", "0.802", "ArrowLeft", "PageDown", "1"):
        if place[0].isdigit():
            slider.fill(place)
        else:
            slider.focus()
            page.keyboard.press(place)
        threshold, shown = in_page(page)
        printed = judge("--threshold", threshold)
        assert printed["threshold"] == float(threshold)
        words = page.eval_on_selector_all(
            ".explorer .metrics [data-metric]", "all => all.map(e => [e.dataset.metric, e.textContent])"
        )
        unknown = {name for name, text in words if text == "not known"}
        assert unknown == {name for name, _ in words if name in printed and printed[name] is None}
        common = {name for name in set(shown) & set(printed) if printed[name] is not None}
        assert len(common) >= 20
        assert {name: shown[name] for name in common} == pytest.approx(
            {name: printed[name] for name in common}, rel=1e-12
        )
        seen.add((shown["tp"], shown["fp"]))
    assert len(seen) >= 4


def test_the_page_opens_at_the_threshold_that_was_passed_to_evaluate(opened, data, judge):
    path = data.parent / "other.html"
    printed = judge("--threshold", "0.25", "--report", path)
    page = opened(path)
    assert in_page(page)[0] == "0.25"
    assert f"F1 is {printed['f1']:.3f}" in page.locator(".headline").text_content()
    assert "at threshold 0.25" in page.locator(".headline").text_content()


def holds_text(page):
    """Names from the data stand in the page as text, and the page has no element they would make."""
    assert page.locator("h1, dd", has_text=EVIL).count() >= 1
    assert page.locator(".explorer .confusion tbody th").all_text_contents() == [f"is “{POSITIVE}”", f"is “{NEGATIVE}”"]
    assert page.locator("script:not(.stops)").count() == 1
    assert page.locator("img, b, i").count() == 0


def test_names_show_as_text_on_the_pages_of_fit_and_evaluate(opened, data, fitted, evaluation):
    for path in (data.parent / "fitted" / "report.html", evaluation[0]):
        holds_text(opened(path))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_fit_shows_the_models_it_consists_of(opened, data, fitted, width):
    page = opened(data.parent / "fitted" / "report.html", viewport={"width": width, "height": 900})
    rows = page.locator("table.models tbody tr")
    assert rows.count() == len(fitted["models"])
    for at, model in enumerate(fitted["models"]):
        assert rows.nth(at).locator("th").inner_text().splitlines()[0] == model["name"]
        shown = [float(data.get_attribute("value")) for data in rows.nth(at).locator("data").all()]
        weight = [model["weight"]] if model["weight"] else []
        assert shown == [*weight, model["value"], model["log_loss"], model["seconds"]]
    assert page.get_by_role("link", name="Models").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    table = page.locator(".scroll:has(table.models)")
    assert table.evaluate("box => box.scrollWidth == box.clientWidth")  # nothing to scroll sideways
    assert page.get_by_role("heading", name="Learning curves").count() == 0


@pytest.mark.slow
def test_names_show_as_text_on_the_page_of_compare(opened, data):
    out = data.parent / "compared"
    found = call("compare", data, "--target", EVIL, "--group", "c", "--folds", "2", "--out", out, *SMALL_COMPARISON)
    page = opened(out / "report.html")
    holds_text(page)
    assert page.locator("h1").text_content() == f"Predicting “{EVIL}” in {data.name}, judged by F1"
    assert page.locator(".methods tbody tr").count() == len(found["methods"])
    assert page.locator("dd", has_text="rows of one “c”").count() == 1
