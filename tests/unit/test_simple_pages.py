"""The simple repository's pages and JSON, the page for --find-links, and what is read of them again."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from therock_outputs.find_links_page import render_find_links_page
from therock_outputs.pip_commands import pip_snippet, requirements_of
from therock_outputs.python_packages import PackageMetadata, parse_package_name
from therock_outputs.simple_pages import (
    PackageEntry,
    is_ours,
    read_entries,
    read_projects,
    render_project_json,
    render_project_page,
    render_root_json,
    render_root_page,
)

BASE = "https://host/bucket/P/python/gfx1151/"
WHEEL = PackageEntry("demo-1.0+x-py3-none-any.whl", 12345, "a" * 64, ">=3.9,<4", "b" * 64)
SDIST = PackageEntry("demo-0.9.tar.gz", 7)
GENERIC = PackageEntry("demo-2!1.0-py3-none-any.whl", 1, "c" * 64, is_generic=True)
ENTRIES = (SDIST, WHEEL, GENERIC)


class _Anchors(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append({name: value or "" for name, value in attrs})


PAGES = [
    pytest.param(render_project_page("demo", ENTRIES), f"{BASE}simple/demo/", id="project"),
    pytest.param(render_project_page("demo", ENTRIES), f"{BASE}simple/demo/index.html", id="project's file"),
    pytest.param(render_find_links_page("Packages", ENTRIES), f"{BASE}index.html", id="find-links"),
]


@pytest.mark.parametrize(("page", "url"), PAGES)
def test_links_lead_to_the_packages_with_their_digests(page: bytes, url: str) -> None:
    found = [urljoin(url, anchor["href"]) for anchor in _Anchors(page).found]
    assert found == [
        f"{BASE}demo-0.9.tar.gz",
        f"{BASE}demo-1.0%2Bx-py3-none-any.whl#sha256={'a' * 64}",
        f"https://host/bucket/P/python/demo-2%211.0-py3-none-any.whl#sha256={'c' * 64}",
    ]


@pytest.mark.parametrize(("page", "url"), PAGES)
def test_links_say_what_pip_wants_to_know_before_a_download(page: bytes, url: str) -> None:
    sdist, wheel, _ = _Anchors(page).found
    assert wheel["data-requires-python"] == ">=3.9,<4"
    assert wheel["data-core-metadata"] == wheel["data-dist-info-metadata"] == f"sha256={'b' * 64}"
    assert not {"data-requires-python", "data-core-metadata", "data-dist-info-metadata"} & sdist.keys()


def test_json_says_the_same() -> None:
    document = json.loads(render_project_json("demo", ENTRIES))
    assert document["meta"]["api-version"] == "1.1"
    assert (document["name"], document["versions"]) == ("demo", ["0.9", "1.0+x", "2!1.0"])
    sdist, wheel, generic = document["files"]
    assert wheel == {
        "filename": WHEEL.file_name,
        "url": "../../demo-1.0%2Bx-py3-none-any.whl",
        "hashes": {"sha256": "a" * 64},
        "size": 12345,
        "requires-python": ">=3.9,<4",
        "core-metadata": {"sha256": "b" * 64},
        "dist-info-metadata": {"sha256": "b" * 64},
    }
    assert (sdist["hashes"], sdist["core-metadata"], "requires-python" in sdist) == ({}, False, False)
    assert urljoin(f"{BASE}simple/demo/index.v1_json", generic["url"]).endswith("/python/demo-2%211.0-py3-none-any.whl")


def test_a_root_links_to_each_project_once_and_says_the_version_of_the_interface() -> None:
    page = render_root_page(["torch", "rocm", "torch"])
    assert [anchor["href"] for anchor in _Anchors(page).found] == ["rocm/", "torch/"]
    assert b'<meta name="pypi:repository-version" content="1.0">' in page
    assert json.loads(render_root_json(["torch", "rocm"]))["projects"] == [{"name": "rocm"}, {"name": "torch"}]


names = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._]{0,8}[A-Za-z0-9])?\Z").filter(lambda name: ".." not in name)
entries = st.builds(
    PackageEntry,
    st.builds(lambda name, number: f"{name}-{number}.tar.gz", names, st.integers(0, 99)),
    st.integers(0, 10**15 - 1),
    st.sampled_from(["", "0" * 64]),
    st.sampled_from(["", ">=3.9", "!=3.10.*,<4"]),
    st.sampled_from(["", "f" * 64]),
    st.booleans(),
)


@given(st.sets(entries))
def test_what_is_written_is_read_again(packages: set[PackageEntry]) -> None:
    for document in (
        render_project_page("x", packages),
        render_project_json("x", packages),
        render_find_links_page("x", packages),
    ):
        assert read_entries(document) == tuple(sorted(packages))


@given(st.binary() | st.text().map(str.encode))
def test_reading_never_fails(document: bytes) -> None:
    assert read_entries(document) is None
    assert read_projects(document) == ()
    assert not is_ours(document)


def test_a_page_that_no_parser_likes_is_read_as_far_as_it_goes() -> None:
    page = render_find_links_page("demo", [SDIST]).replace(b"</body>", b"<![foo[ </body>")
    assert read_entries(page) == (SDIST,)
    assert (
        read_entries(b"<title>other</title><![foo[ <meta name=generator content='therock-outputs find-links'>") is None
    )


def test_json_keeps_which_object_it_speaks_of() -> None:
    entry = PackageEntry("demo-1.0.tar.gz", 7, object_version="etag-2")
    (found,) = read_entries(render_project_json("demo", [entry])) or ()
    assert found.object_version == "etag-2"
    (file,) = json.loads(render_project_json("demo", [entry]))["files"]
    assert [key for key in file if key.startswith("_")] == ["_object-version"]
    assert b"etag-2" not in render_project_page("demo", [entry]) + render_find_links_page("x", [entry])


@pytest.mark.parametrize("value", [1, None, "", "a b", "é", "x" * 129])
def test_an_object_version_that_cannot_be_ours_is_none(value: object) -> None:
    (found,) = read_entries(json.dumps(OWN_JSON | {"files": [FILE | {"_object-version": value}]}).encode()) or ()
    assert found.object_version == ""


OWN_JSON = {"meta": {"_generator": "therock-outputs python"}}
FILE = {"url": "../../demo-1.0.tar.gz", "size": 1}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (None, ()),
        ("x", ()),
        (["x", 1, None, {}], ()),
        ([FILE | {"size": True}, FILE | {"size": -1}, FILE | {"size": 10**15}, FILE | {"size": "1"}], ()),
        ([FILE | {"url": "../../x.html"}, FILE | {"url": 1}, FILE | {"url": "//["}], ()),
        ([FILE | {"hashes": 1, "core-metadata": True}], (PackageEntry("demo-1.0.tar.gz", 1),)),
        ([FILE | {"hashes": {"sha256": "<"}, "requires-python": "<"}], (PackageEntry("demo-1.0.tar.gz", 1),)),
        ([FILE | {"requires-python": 3}], (PackageEntry("demo-1.0.tar.gz", 1),)),
        ([FILE | {"requires-python": ">=" + "3" * 5000}], (PackageEntry("demo-1.0.tar.gz", 1),)),
        ([FILE | {"url": f"../../demo-{'1' * 5000}.tar.gz"}], ()),
    ],
    ids=range(10),
)
def test_what_others_wrote_into_json_is_not_trusted(files: object, expected: tuple[PackageEntry, ...]) -> None:
    assert read_entries(json.dumps(OWN_JSON | {"files": files}).encode()) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"projects": [{"name": "a-b"}, {"name": "<a>"}, {"name": 1}, {}, "x"]} | OWN_JSON, ("a-b",)),
        ({"projects": 1} | OWN_JSON, ()),
        ({"projects": [{"name": "a"}]}, ()),
        ({"projects": [{"name": "a"}], "meta": 1}, ()),
        ([], ()),
    ],
)
def test_only_legal_names_are_read_of_a_root_of_ours(document: object, expected: tuple[str, ...]) -> None:
    assert read_projects(json.dumps(document).encode()) == expected


def test_deep_json_is_none_of_ours() -> None:
    assert read_entries(b'{"a":' + b"[" * 200_000) is None


def test_a_page_of_any_mode_is_ours_and_of_any_other_program_is_not() -> None:
    assert is_ours(render_find_links_page("x", ()))
    assert is_ours(b'<meta name="generator" content="therock-outputs files">')
    assert read_entries(b'<meta name="generator" content="therock-outputs files">') is None
    assert not is_ours(b'<meta name="generator" content="other">')
    assert not is_ours(b"<html></html>")


def test_hostile_titles_are_text() -> None:
    page = render_find_links_page('<script>alert("x")</script>\n\u202e', ENTRIES)
    assert b"<script>" not in page
    assert b"\\u202e" in page


def test_sizes_and_digests_are_there_for_people() -> None:
    page = render_find_links_page("Packages", ENTRIES).decode()
    assert "3 packages, 12 kB" in page
    assert f'title="sha256 {"a" * 64}"' in page


# The command for people


def package(file_name: str, *extras: str) -> tuple[object, PackageMetadata]:
    return parse_package_name(file_name), PackageMetadata(extras=extras)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ([package("rocm-7.tar.gz", "devel", "libraries", "x"), package("a-1.tar.gz")], ("rocm[libraries,devel]==7",)),
        ([package("rocm-7.0.tar.gz")], ("rocm==7.0",)),
        ([package(f"{name}-1.tar.gz", "devel") for name in "dcba"], ("a==1", "b==1", "c==1")),
        ([package("a-9.tar.gz"), package("a-10.tar.gz"), package("a-10rc1.tar.gz")], ("a==10",)),
        ([], ()),
    ],
)  # fmt: skip
def test_rocm_or_the_first_few_projects_are_installed(
    packages: list[tuple[object, PackageMetadata]], expected: tuple[str, ...]
) -> None:
    assert requirements_of(packages) == expected  # type: ignore[arg-type]  # made above


def test_each_shell_gets_its_own_quotes_and_line_ends() -> None:
    found = {
        platform: pip_snippet("x", platform=platform, find_links="out dir/$(x)", requirements=["a[b]==1", "c==1"])
        for platform in ("linux", "windows")
    }
    assert found["linux"].language == "sh"
    assert found["linux"].lines == (
        "python -m pip install \\",
        "    --find-links 'out dir/$(x)' \\",
        "    'a[b]==1' \\",
        "    c==1",
    )
    assert found["windows"].language == "bat"
    assert found["windows"].lines == (
        "python -m pip install ^",
        '    --find-links "out dir/$(x)" ^',
        '    "a[b]==1" ^',
        "    c==1",
    )
