"""Pages of mode index in a real browser: every link opens, filter and sort work, and the page works without scripts."""

from __future__ import annotations

import datetime
import functools
import http.server
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pytest

from fakes.contexts import STAGED, make_context
from fakes.trees import write_tree
from therock_outputs.index_page import FileEntry, render_folder_page
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

P = "100-linux"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = (
    "<script>alert(1)<script>.log",
    "\"><img src=x onerror='alert(1)'>.log",
    "hash#1.log",
    "what?.log",
    "100%.log",
    "100%25.log",
    "1.0+rocm7~rc1.tar.gz",
    "with space .log",
    "é 漢字 😀.log",
    "a&amp;b;c=d:e.log",
    "javascript:alert(1)",
)
TREE = {
    **{f"logs/odd/{name}": "x" * 10 for name in HOSTILE},
    "logs/<b>bold#?%/a.log": "a",
    "logs/sized/large.bin": "x" * 3_000_000,
    "logs/sized/middle.bin": "x" * 2_000,
    "logs/sized/small.bin": "x",
    "logs/sized/folder/a": "x" * 50,
    "logs/sized/a-folder/a": "x" * 5_000,
    "archive.tar.zst": "x",
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its pages."""
    workspace = tmp_path_factory.mktemp("indexed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("GITHUB_REF", "RELEASE_TYPE", "IS_PR_FROM_FORK"):
            monkeypatch.delenv(name, raising=False)
        folder = workspace / STAGED / P
        write_tree(folder, TREE)
        assert load_mode(Mode.INDEX).run(make_context(workspace, Mode.INDEX)).error is None
    return folder


@pytest.fixture(scope="module")
def server(run_folder: Path) -> Iterator[str]:
    """A web server of the run on 127.0.0.1."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as http.server's
            pass

    handler = functools.partial(Handler, directory=run_folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(params=["http", "file"])
def base(request: pytest.FixtureRequest, run_folder: Path) -> str:
    """The URL of the run's folder."""
    return run_folder.as_uri() if request.param == "file" else str(request.getfixturevalue("server"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:  # noqa: ANN401 - new_context's
    """The page; whatever it says on the console, or asks the network for beside itself, is a failure."""
    trouble: list[str] = []
    context = browser.new_context(**options)
    try:
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: None if request.is_navigation_request() else trouble.append(request.url))
        page.goto(url)
        yield page
        assert trouble == []
    finally:
        context.close()


def names(page: Page) -> list[str]:
    """The names in the rows that are shown, from the top."""
    texts: list[str] = page.eval_on_selector_all(
        "tbody tr", "rows => rows.filter(row => row.offsetParent).map(row => row.cells[0].firstChild.textContent)"
    )
    return texts


def links(page: Page) -> list[str]:
    found: list[str] = page.eval_on_selector_all("a", "links => links.map(link => link.href)")
    return found


def test_every_link_of_every_page_opens_what_it_names(browser: Browser, base: str, run_folder: Path) -> None:
    seen: set[str] = set()
    waiting = [f"{base}/index.html"]
    with opened(browser, waiting[0]) as page:
        while waiting:
            url = waiting.pop()
            if url in seen:
                continue
            seen.add(url)
            if url.endswith("/index.html"):
                answer = page.goto(url)
                assert answer is not None
                assert answer.ok, url
                waiting += links(page)
            else:
                answer = page.request.get(url) if url.startswith("http") else None
                assert answer is None or answer.status == 200, url
    documents = {"index.html", "index.json"}
    paths = (path for path in run_folder.rglob("*") if path.is_file() and path.name not in documents)
    files = {path.relative_to(run_folder).as_posix() for path in paths}
    expected = {f"{base}/{quote(name, safe='/~')}" for name in files if not name.startswith("reports/")}
    assert {_normalised(url) for url in seen if not url.endswith("/index.html")} == {*map(_normalised, expected)}


def _normalised(url: str) -> str:
    """Percent-encoding as urllib has it: browsers leave some characters of a path alone."""
    return quote(unquote(url), safe="/~:")


def test_hostile_names_are_shown_as_they_are(browser: Browser, base: str) -> None:
    with opened(browser, f"{base}/logs/odd/index.html") as page:
        assert sorted(names(page)) == sorted(HOSTILE)
        assert page.locator("img").count() == 0
        assert page.title() == f"{P}/logs/odd"


def test_a_click_on_a_header_sorts_and_says_so(browser: Browser, base: str) -> None:
    with opened(browser, f"{base}/logs/sized/index.html") as page:
        name, size = page.get_by_role("button", name="Name"), page.get_by_role("button", name="Size")
        header = page.locator("th")
        assert names(page) == ["a-folder/", "folder/", "large.bin", "middle.bin", "small.bin"]
        assert header.nth(0).get_attribute("aria-sort") == "ascending"
        name.click()
        assert names(page) == ["folder/", "a-folder/", "small.bin", "middle.bin", "large.bin"]
        assert header.nth(0).get_attribute("aria-sort") == "descending"
        size.click()
        assert names(page) == ["a-folder/", "folder/", "large.bin", "middle.bin", "small.bin"]
        assert [header.nth(number).get_attribute("aria-sort") for number in (0, 1)] == [None, "descending"]
        size.focus()
        page.keyboard.press("Enter")
        assert names(page) == ["folder/", "a-folder/", "small.bin", "middle.bin", "large.bin"]
        assert header.nth(1).get_attribute("aria-sort") == "ascending"
        page.get_by_role("button", name="Modified").click()
        assert header.nth(2).get_attribute("aria-sort") == "descending"


def test_the_filter_shows_rows_with_all_words_and_says_how_many(browser: Browser, base: str) -> None:
    with opened(browser, f"{base}/logs/odd/index.html") as page:
        box = page.get_by_label("Filter by name")
        box.fill("LOG 100")
        assert names(page) == ["100%.log", "100%25.log"]
        assert page.locator("output").inner_text() == f"2 of {len(HOSTILE)} shown"
        box.press("Enter")
        assert page.url.endswith("/logs/odd/index.html")
        box.fill("漢")
        assert names(page) == ["é 漢字 😀.log"]
        box.fill("nothing like it")
        assert names(page) == []
        box.fill("")
        assert len(names(page)) == len(HOSTILE)
        assert page.locator("output").inner_text() == ""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a page of names that are hard to sort, find and show."""
    day = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
    page = tmp_path_factory.mktemp("named") / "index.html"
    page.write_bytes(render_folder_page((P, "עברית", "ערבית", "1.0"), [FileEntry(name, 1, day) for name in NAMED], []))
    return page.as_uri()


NAMED = (
    "10.log",
    "2.log",
    "9.log",
    "Zeta",
    "alpha",
    "İstanbul.LOG",
    "straße",
    "e\u0301cole",
    "שלום (1)",
    "a b",
    "a  b",
    " ",
)


def test_names_are_sorted_as_people_count_whatever_the_browser_s_language(browser: Browser, named: str) -> None:
    for locale in ("en-US", "tr-TR", "sv-SE"):
        with opened(browser, named, locale=locale) as page:
            assert page.locator("th").first.get_attribute("aria-sort") == "ascending"
            shown = names(page)
            assert [name for name in shown if name.endswith(".log")] == ["2.log", "9.log", "10.log"]
            assert shown.index("alpha") < shown.index("e\u0301cole") < shown.index("Zeta")
            page.get_by_role("button", name="Name").click()
            assert names(page) == shown[::-1]
    with opened(browser, named, java_script_enabled=False) as page:
        assert page.locator("tbody a").count() == len(NAMED)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("istanbul", "İstanbul.LOG"),
        ("İSTANBUL", "İstanbul.LOG"),
        ("\u0131stanbul", "İstanbul.LOG"),
        ("STRASSE", "straße"),
        ("école", "e\u0301cole"),
        ("ECOLE", "e\u0301cole"),
    ],
)
def test_the_filter_finds_a_name_however_it_is_typed(browser: Browser, named: str, words: str, found: str) -> None:
    for locale in ("en-US", "tr-TR"):
        with opened(browser, named, locale=locale) as page:
            page.get_by_label("Filter by name").fill(words)
            assert names(page) == [found]


def test_blanks_are_shown_and_a_name_does_not_turn_what_stands_beside_it(browser: Browser, named: str) -> None:
    with opened(browser, named) as page:
        widths: dict[str, float] = dict(
            page.eval_on_selector_all(
                "tbody a", "all => all.map(a => [a.textContent, a.getBoundingClientRect().width])"
            )
        )
        assert widths["a  b"] > widths["a b"]
        assert widths[" "] > 0
        # In the breadcrumb, which is read from left to right, the run comes first and the heading after it.
        lefts = page.eval_on_selector_all("nav a", "all => all.map(a => a.getBoundingClientRect().left)")
        assert lefts == sorted(lefts)
        assert page.locator("nav").evaluate("nav => getComputedStyle(nav).direction") == "ltr"


def test_without_scripts_the_table_is_there_and_nothing_that_would_not_work(browser: Browser, base: str) -> None:
    with opened(browser, f"{base}/logs/sized/index.html", java_script_enabled=False) as page:
        rows = page.locator("tbody a").all_inner_texts()
        assert rows == ["a-folder/", "folder/", "large.bin", "middle.bin", "small.bin"]
        assert page.locator("form").is_hidden()
        assert page.locator("button").count() == 0
        page.get_by_role("link", name="logs", exact=True).click()
        assert page.locator("h1").inner_text() == "logs"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_it_fits_and_can_be_read_in_light_and_dark(browser: Browser, server: str, scheme: Any, width: int) -> None:  # noqa: ANN401 - playwright wants a literal
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 700}}
    for path in ("index.html", "logs/index.html", "logs/odd/index.html"):
        with opened(browser, f"{server}/{path}", **options) as page:
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            ratios = page.evaluate(CONTRASTS)
            assert min(ratios) >= 4.5, ratios  # WCAG 2.2, 1.4.3


CONTRASTS = """() => {
  const level = text => {
    const parts = text.match(/[0-9.]+/g).slice(0, 3).map(one => +one / 255);
    const [red, green, blue] = parts.map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = level(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("h1, p, a, td, th button, label, small")].map(element => {
    const text = level(getComputedStyle(element).color);
    return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
  });
}"""


def test_ten_thousand_rows_sort_and_filter(browser: Browser, tmp_path: Path) -> None:
    day = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
    entries = [FileEntry(f"component-{number:05}.log", number, day) for number in range(10_000)]
    (tmp_path / "index.html").write_bytes(render_folder_page((P,), entries, []))
    with opened(browser, (tmp_path / "index.html").as_uri()) as page:
        page.get_by_role("button", name="Size").click()
        assert page.locator("tbody a").first.inner_text() == "component-09999.log"
        page.get_by_label("Filter by name").fill("0123")
        assert page.locator("output").inner_text() == "11 of 10,000 shown"
