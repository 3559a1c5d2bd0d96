"""Chromium, and pages opened in it that are held to their promises."""

import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine; on Debian: apt-get install --no-install-recommends chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser):
    """Opens pages, and at the end holds them to their promises: no request, no message, no error, no dialog."""
    contexts, asked_for, requests, complaints = [], set(), [], []

    def open_page(path, **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.route("**/*", lambda route: requests.append(route.request.url) or route.continue_())
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        asked_for.add(path.as_uri())
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert {url for url in requests if not url.startswith("data:")} == asked_for
    assert complaints == []
