"""The report in Chromium: the explorer shows the library's numbers, data is text, nothing is asked of the network."""

import math
import re
from functools import cache

import pytest
import torch

from metricfit import Counts, curves, get_metric, report
from metricfit.metrics.group_gap import is_undefined

pytestmark = pytest.mark.browser


EVIL = "<script>alert(1)</script>"
QUOTES = """say "yes" & 'no'"""


def data(n):
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(n, generator=generator) < 0.2).long()
    logits = torch.randn(n, generator=generator, dtype=torch.float64) + 2 * y - 1.5
    return logits, y


@pytest.fixture(scope="module")
def small():
    return data(300)


@pytest.fixture(params=[300, 5000], ids=["every score", "a choice of scores"])
def sized(request):
    return data(request.param)


@cache
def page_of(n, threshold):
    """The page as text: drawn once for all tests that open it."""
    logits, y = data(n)
    s = torch.sigmoid(logits)
    chosen = threshold or curves.best_threshold(s, y, "f1", "recall >= 0.6").threshold
    sections = [
        report.comparison(
            [report.ComparisonRow(EVIL, 0.7, (0.6, 0.8)), report.ComparisonRow(QUOTES, 0.6)], "f1", reference=EVIL
        ),
        report.scores(s, y, threshold=chosen, requirements="recall >= 0.6", classes=(EVIL, QUOTES)),
        report.learning_curves([{"train_loss": 1.0, "value": 0.5, "monitor": EVIL}, {"train_loss": 0.5, "value": 0.6}]),
        report.multiclass([0, 1, 1], [0, 1, 0], classes=[EVIL, QUOTES]),
    ]
    return report.render(report.Report(EVIL, QUOTES, EVIL, sections, {"column": EVIL}))


def written(folder, logits, y, threshold=None):
    path = folder / "report.html"
    path.write_text(page_of(len(y), threshold), encoding="utf-8")
    return path


def shown(page, selector):
    """The numbers of elements, by what they show: full values, not the rounded text."""
    return page.eval_on_selector_all(
        f".explorer {selector}",
        "all => all.map(e => [e.dataset.count || e.dataset.metric, Number(e.getAttribute('value')), e.textContent])",
    )


def in_effect(page):
    return float(page.locator(".effect").get_attribute("value").replace("Infinity", "inf"))


def check(page, logits, y):
    """All that the page shows is the library's at the threshold it says is in effect."""
    counts = Counts.hard(logits, y, threshold=t) if (t := in_effect(page)) < math.inf else None
    assert counts is not None
    for name, value, text in shown(page, "[data-count]"):
        assert value == float(getattr(counts, name))
        assert text == f"{value:,.0f}"
    values = shown(page, "[data-metric]")
    assert len(values) >= 20
    for name, value, text in values:
        assert value == pytest.approx(get_metric(name)(counts).item(), rel=1e-12), name
        unknown = bool(is_undefined(get_metric(name), counts).all())
        assert (text == "not known") == unknown
        if not unknown and not text.endswith("%"):
            assert float(text) == pytest.approx(value, abs=6e-4)
    holds = bool((get_metric("recall") >= 0.6).holds(counts))
    assert page.locator(".requirements .state").text_content() == ("met" if holds else "not met")


@pytest.mark.parametrize("t", [0.0, 0.123, 0.25, 0.5, 0.731])
def test_moving_the_slider_shows_the_librarys_numbers(opened, tmp_path, sized, t):
    page = opened(written(tmp_path, *sized))
    page.locator(".slider").fill(str(t))
    assert in_effect(page) == t
    check(page, *sized)


def test_the_page_opens_at_the_chosen_threshold(opened, tmp_path, sized):
    logits, y = sized
    page = opened(written(tmp_path, logits, y))
    best = curves.best_threshold(torch.sigmoid(logits), y, "f1", "recall >= 0.6")
    assert in_effect(page) == best.threshold
    name, value, _ = shown(page, ".judged data")[0]
    assert (name, value) == ("f1", pytest.approx(best.value, rel=1e-12))
    check(page, logits, y)


def test_buttons_and_the_number_field(opened, tmp_path, small):
    logits, y = small
    page = opened(written(tmp_path, logits, y, threshold=0.9))
    start = in_effect(page)
    page.get_by_role("button", name="0.5", exact=True).click()
    assert in_effect(page) == 0.5
    check(page, logits, y)
    page.get_by_role("button", name=re.compile("^best here")).click()
    assert in_effect(page) == curves.best_threshold(torch.sigmoid(logits), y, "f1", "recall >= 0.6").threshold
    check(page, logits, y)
    before = in_effect(page)
    page.get_by_role("button", name="Next higher threshold").click()
    scores = torch.sigmoid(logits)
    assert in_effect(page) == min(float(scores[scores > before].min()), 0.5 if before < 0.5 else 1.0)
    check(page, logits, y)
    page.get_by_role("spinbutton", name="Threshold").fill("0.3217")
    page.get_by_role("spinbutton", name="Threshold").press("Enter")
    assert in_effect(page) == 0.3217
    check(page, logits, y)
    page.get_by_role("button", name=re.compile("^chosen")).click()
    assert in_effect(page) == start


def typed(page, text):
    field = page.get_by_role("spinbutton", name="Threshold")
    field.fill(text)
    field.press("Enter")
    return field.input_value()


@pytest.mark.parametrize("text", ["0.6", "0.60", "0.123", "1", "0", ".25"])
def test_a_typed_threshold_is_kept_and_its_counts_are_shown(opened, tmp_path, sized, text):
    page = opened(written(tmp_path, *sized))
    assert typed(page, text) == text
    assert in_effect(page) == float(text)
    assert float(page.locator(".slider").input_value()) == float(text)
    assert not page.locator(".explanation").is_visible()
    check(page, *sized)


@pytest.mark.parametrize(("text", "clamped"), [("1.7", 1.0), ("-0.2", 0.0), ("100", 1.0)])
def test_a_threshold_outside_0_to_1_is_explained_and_kept_in_the_field(opened, tmp_path, sized, text, clamped):
    page = opened(written(tmp_path, *sized))
    assert typed(page, text) == text
    said = page.locator(".explanation").text_content()
    assert said == f"Scores lie from 0 to 1, and {text} does not: the numbers belong to {clamped:g}."
    assert page.locator(".explanation").is_visible()
    assert in_effect(page) == clamped
    check(page, *sized)
    assert typed(page, "0.4") == "0.4"
    assert not page.locator(".explanation").is_visible()


def test_a_threshold_without_stored_counts_is_explained(opened, tmp_path):
    logits, y = data(5000)
    page = opened(written(tmp_path, logits, y))
    assert typed(page, "0.3217654") == "0.3217654"
    said = page.locator(".explanation").text_content()
    shown_threshold = page.locator(".effect").text_content()
    assert said == (
        f"This page does not hold the counts of 0.3217654: the numbers belong to {shown_threshold}, the next "
        "threshold that it holds."
    )
    assert 0.3217654 < in_effect(page) <= 0.322
    check(page, logits, y)
    page.get_by_role("button", name="0.5", exact=True).click()
    assert not page.locator(".explanation").is_visible()


def test_an_empty_field_changes_nothing_and_says_what_to_type(opened, tmp_path, small):
    page = opened(written(tmp_path, *small))
    before = in_effect(page)
    assert (typed(page, ""), in_effect(page)) == ("", before)
    assert page.locator(".explanation").text_content().startswith("Type a number from 0 to 1")


def test_above_every_score_nothing_is_predicted_positive(opened, tmp_path, small):
    page = opened(written(tmp_path, *small))
    page.locator(".slider").fill("1")
    assert page.locator(".called").text_content() == "0"
    assert {name: value for name, value, _ in shown(page, "[data-count]")}["tp"] == 0
    check(page, *small)


def test_the_slider_moves_by_keyboard(opened, tmp_path, small):
    page = opened(written(tmp_path, *small, threshold=0.4))
    page.get_by_role("slider", name="Threshold").focus()
    page.keyboard.press("ArrowRight")
    assert in_effect(page) == 0.401
    page.keyboard.press("End")
    assert in_effect(page) == 1
    page.keyboard.press("Home")
    assert in_effect(page) == 0
    check(page, *small)
    assert re.fullmatch(r"0; f1 0\.\d+", page.locator(".slider").get_attribute("aria-valuetext").replace("\n", " "))


def test_marks_move_along_the_curves(opened, tmp_path, small):
    page = opened(written(tmp_path, *small))

    def place(x, y):
        return page.locator(f"circle.mark[data-x={x}][data-y={y}]").evaluate(
            "e => ['x', 'y'].map(a => { const [low, high, start, end] = e.dataset[a + 'Range'].split(' ').map(Number);"
            "return low + (e.getAttribute('c' + a) - start) / (end - start) * (high - low); })"
        )

    for t in (0.2, 0.6):
        page.locator(".slider").fill(str(t))
        counts = Counts.hard(*small, threshold=t)
        for x, y in (("fpr", "recall"), ("recall", "precision")):
            expected = [get_metric(name)(counts).item() for name in (x, y)]
            assert place(x, y) == pytest.approx(expected, abs=1e-3)
        line = page.locator(".wide line.mark").evaluate(
            "e => [e.getAttribute('x1'), ...e.dataset.xRange.split(' ')].map(Number)"
        )
        x, low, high, start, end = line
        assert low + (x - start) / (end - start) * (high - low) == pytest.approx(t, abs=1e-3)


def test_marks_lie_on_the_drawn_curves(opened, tmp_path, small):
    """Marks and curves are placed by the axes' box; matplotlib drew the diagonal of the ROC curve."""
    page = opened(written(tmp_path, *small))
    page.locator(".slider").fill("0.35")
    roc = page.locator("circle.mark[data-x=fpr]")
    corners = roc.evaluate(
        """mark => {
            const dashed = mark.ownerSVGElement.querySelector("path[style*='--muted'][style*='stroke-dasharray']");
            const [start, end] = [dashed.getPointAtLength(0), dashed.getPointAtLength(dashed.getTotalLength())];
            const [x, y] = ["xRange", "yRange"].map(name => mark.dataset[name].split(" ").map(Number));
            const unplace = (at, [low, high, from, to]) => low + (at - from) / (to - from) * (high - low);
            return [unplace(start.x, x), unplace(start.y, y), unplace(end.x, x), unplace(end.y, y)];
        }"""
    )
    assert corners == pytest.approx([0, 0, 1, 1], abs=2e-3)
    distance = roc.evaluate(
        """mark => {
            const [x, y] = [Number(mark.getAttribute("cx")), Number(mark.getAttribute("cy"))];
            const curve = mark.ownerSVGElement.querySelector("path.curve.first");
            const length = curve.getTotalLength();
            let nearest = Infinity;
            for (let at = 0; at <= 4000; at++) {
                const point = curve.getPointAtLength(length * at / 4000);
                nearest = Math.min(nearest, Math.hypot(point.x - x, point.y - y));
            }
            return nearest;
        }"""
    )
    assert distance < 0.5


def test_names_from_the_data_show_as_text(opened, tmp_path, small):
    page = opened(written(tmp_path, *small))
    assert page.title() == EVIL
    assert page.locator("h1").text_content() == EVIL
    assert page.locator(".headline").text_content() == QUOTES
    assert page.locator(".methods tbody th").all_text_contents() == [f"{EVIL} (reference)", QUOTES]
    assert page.locator(".explorer .confusion tbody th").all_text_contents() == [f"is “{QUOTES}”", f"is “{EVIL}”"]
    assert page.locator(".classes tbody th").all_text_contents() == [EVIL, QUOTES]
    assert page.locator("svg text", has_text=EVIL).count() >= 1
    assert page.locator("script").count() == 2


def test_light_dark_and_the_switch(opened, tmp_path, small):
    path = written(tmp_path, *small)

    def ground(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark, light = "rgb(20, 23, 28)", "rgb(255, 255, 255)"
    page = opened(path, color_scheme="dark")
    assert ground(page) == dark
    page.get_by_role("button", name="Light colours").click()
    assert ground(page) == light
    page.get_by_role("button", name="Dark colours").click()
    assert ground(page) == dark
    page.emulate_media(media="print")
    assert ground(page) == light
    assert not page.locator(".slider").is_visible()
    page = opened(path, color_scheme="light")
    assert ground(page) == light


def test_a_narrow_screen_scrolls_only_down(opened, tmp_path, small):
    page = opened(written(tmp_path, *small), viewport={"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator(".explorer .narrow").is_visible()
    assert not page.locator(".explorer .wide").is_visible()


def test_without_scripts_the_chosen_threshold_is_shown(opened, tmp_path, small):
    page = opened(written(tmp_path, *small), java_script_enabled=False)
    assert page.locator(".slider").is_disabled()
    assert page.get_by_text("Scripts are disabled").is_visible()
    scores = torch.sigmoid(small[0])
    best = curves.best_threshold(scores, small[1], "f1", "recall >= 0.6")
    assert float(page.locator(".explorer .judged data").get_attribute("value")) == best.value


def test_an_injected_script_is_stopped_by_the_policy(browser, tmp_path, small):
    path = written(tmp_path, *small)
    harmed = path.read_text(encoding="utf-8").replace("<main", "<script>window.ran = 1</script><main")
    path.write_text(harmed, encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("window.ran") is None
    page.close()
