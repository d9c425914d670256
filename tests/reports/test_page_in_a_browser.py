"""The page of a run in headless Chromium, on a desk and on a phone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.reports import fixed_kills, fixed_stream
from treedrift.reports.drills import Kills, kills_page
from treedrift.reports.html import page
from treedrift.reports.run import RunView

webdriver = pytest.importorskip("selenium.webdriver")

pytestmark = pytest.mark.browser

DESK, PHONE = 1280, 390
WIDTHS = pytest.mark.parametrize("width", [DESK, PHONE])
PAGES = pytest.mark.parametrize("name", ["report", "kills"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.add_argument("--headless=new")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to run as root with one.
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("pages")
    pages = {
        "report": page(RunView.from_events(fixed_stream.events())),
        "kills": kills_page(msgspec.convert(fixed_kills.table(), Kills)),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in pages}


@pytest.fixture
def address(addresses: dict[str, str]) -> str:
    return addresses["report"]


def visit(browser: Any, address: str, width: int, scheme: str = "light") -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for log in ("browser", "performance"):
        browser.get_log(log)  # Reading a log empties it.
    browser.get(address)


def unfold(browser: Any) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")


@PAGES
@WIDTHS
def test_the_page_never_scrolls_sideways(
    browser: Any, addresses: dict[str, str], width: int, name: str
) -> None:
    visit(browser, addresses[name], width)
    unfold(browser)
    root = "document.documentElement"
    shown = browser.execute_script(f"return {root}.clientWidth")
    assert width - 20 <= shown <= width  # A desk's browser has a scroll bar.
    assert browser.execute_script(f"return {root}.scrollWidth") == shown


@PAGES
@WIDTHS
def test_nothing_that_is_wide_is_cut_off(
    browser: Any, addresses: dict[str, str], width: int, name: str
) -> None:
    visit(browser, addresses[name], width)
    unfold(browser)
    outside = browser.execute_script(
        """
        const isOutside = one => one.getBoundingClientRect().right > innerWidth + 1;
        return [...document.querySelectorAll('main *')]
            .filter(one => isOutside(one) && !one.closest('.scroll, .file, .unseen'))
            .map(one => one.outerHTML.slice(0, 120));
        """
    )
    assert outside == []


@WIDTHS
def test_the_console_stays_silent_and_nothing_is_asked_of_a_network(
    browser: Any, address: str, width: int
) -> None:
    visit(browser, address, width)
    assert browser.get_log("browser") == []
    told = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        one["params"]["request"]["url"]
        for one in told
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith("data:")] == [address]


def test_a_tokens_script_is_shown_and_not_run(browser: Any, address: str) -> None:
    visit(browser, address, DESK)
    assert fixed_stream.HOSTILE_TEXT in browser.find_element("css selector", ".ops").text
    assert browser.execute_script("return document.scripts.length") == 0


def test_the_verdict_is_what_is_seen_first(browser: Any, address: str) -> None:
    visit(browser, address, PHONE)
    verdict = browser.find_element("css selector", ".verdict")
    assert verdict.is_displayed()
    assert verdict.location["y"] + verdict.size["height"] < 300
    headings = [one.text for one in browser.find_elements("css selector", "h2")]
    assert headings == [
        "What was compared",
        "Findings",
        "Repeat it",
        "The run",
        "Known differences",
        "Over time",
        "What was reached",
    ]


def test_a_known_kind_is_folded_away_until_it_is_asked_for(browser: Any, address: str) -> None:
    visit(browser, address, DESK)
    known = browser.find_element("css selector", ".finding.known")
    body = known.find_element("css selector", ".signature")
    assert not body.is_displayed()
    summary = known.find_element("css selector", "summary")
    summary.click()
    assert body.is_displayed()
    summary.click()
    assert not body.is_displayed()


def test_a_finding_is_one_click_from_the_overview(browser: Any, address: str) -> None:
    visit(browser, address, DESK)
    browser.find_element("css selector", ".overview a").click()
    target = browser.find_element("css selector", "#finding-1")
    assert browser.current_url.endswith("#finding-1")
    assert target.find_element("css selector", "h3").is_displayed()


CONTRAST = """
const parse = text => text.match(/[\\d.]+/g).map(Number);
const light = rgb => {
    const part = rgb.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92
        : ((v + .055) / 1.055) ** 2.4);
    return .2126 * part[0] + .7152 * part[1] + .0722 * part[2];
};
const behind = one => {
    for (; one; one = one.parentElement) {
        const back = parse(getComputedStyle(one).backgroundColor);
        if (back.length < 4 || back[3] > 0) return back;
    }
    return [255, 255, 255];
};
return [...document.querySelectorAll('main *, footer *')].filter(one =>
    !one.closest('svg') && [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim())
).map(one => {
    const pair = [light(parse(getComputedStyle(one).color)), light(behind(one))];
    const ratio = (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
    return [ratio, one.outerHTML.slice(0, 120)];
}).filter(([ratio]) => ratio < 4.5);
"""


@PAGES
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(
    browser: Any, addresses: dict[str, str], scheme: str, name: str
) -> None:
    visit(browser, addresses[name], DESK, scheme)
    unfold(browser)
    back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.execute_script(CONTRAST) == []
