"""Tarballs, manifests and reports as people get them: by curl and tar, and in a browser, from S3 and from a folder."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.request
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from fakes import markdown
from fakes.runner import FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.trees import write_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from fakes.runner import StepResult

BUCKET = "therock-ci-artifacts"
AWS = f"https://{BUCKET}.s3.amazonaws.com"
P = "15948739823-linux"
VERSION = "7.11.0.dev0+abc123"
TARBALLS = {
    "gfx94X-dcgpu": f"therock-dist-linux-gfx94X-dcgpu-{VERSION}.tar.gz",
    "multiarch": f"therock-dist-linux-multiarch-{VERSION}.tar.gz",
    "multiarch-tests": f"therock-dist-linux-multiarch-tests-{VERSION}.tar.gz",
}
PUBLIC = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    ],
}
REPORT = {
    "index.html": '<!doctype html><title>r</title><link rel="icon" href="data:,"><link rel="stylesheet" '
    'href="style/main.css"><p id="p">plain</p><a href="pages/a%20%2B%20b%23.html">next</a><img src="p.svg">'
    '<script src="script/main.js"></script>',
    "style/main.css": "#p { color: rgb(1, 2, 3) }",
    "script/main.js": 'document.getElementById("p").textContent = "scripted";',
    "pages/a + b#.html": '<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" '
    'href="../style/main.css"><p id="p">second</p>',
    "p.svg": '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"></svg>',
}


@dataclass(frozen=True)
class Place:
    """Where the run's outputs are read: what stands there for AWS's address of the bucket, and how a step stores."""

    url: str
    environment: dict[str, str]
    inputs: dict[str, str]

    def local(self, url: str) -> str:
        """The same object's URL here."""
        assert url.startswith(f"{AWS}/"), url
        return self.url + url.removeprefix(AWS)

    def get(self, url: str) -> bytes:
        with urllib.request.urlopen(self.local(url), timeout=20) as answer:
            assert answer.status == 200
            return bytes(answer.read())


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """A line a request would bury a test's own output."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def bucket(url: str) -> Iterator[Place]:
    """The inventory's bucket on a server, whose objects everybody may read."""
    import boto3
    from botocore.config import Config

    session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    with closing(session.client("s3", endpoint_url=url, config=Config(proxies={}))) as client:
        client.create_bucket(Bucket=BUCKET)
        client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(PUBLIC))
        try:
            yield Place(
                f"{url}/{BUCKET}",
                {
                    "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
                    "AWS_SECRET_ACCESS_KEY": "made-up",
                    "AWS_EC2_METADATA_DISABLED": "true",
                    "AWS_ENDPOINT_URL_S3": url,
                },
                {"index": "write"},
            )
        finally:
            _empty(client)


def _empty(client: S3Client) -> None:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for entry in page.get("Contents", []):
            client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    client.delete_bucket(Bucket=BUCKET)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return FakeRunner(root=tmp_path / "job")


@pytest.fixture(params=["folder", "moto", pytest.param("ministack", marks=[pytest.mark.needs("ministack")])])
def place(request: pytest.FixtureRequest, runner: FakeRunner) -> Iterator[Place]:
    """A staging folder behind a plain web server, and a bucket of each server that knows S3."""
    if request.param == "folder":
        (runner.workspace / "out").mkdir()
        with serve(runner.workspace / "out") as url:
            yield Place(url, {}, {"index": "write", "staging_dir": "out"})
        return
    with bucket(request.getfixturevalue(f"{request.param}_url")) as there:
        yield there


def run(runner: FakeRunner, place: Place, inputs: dict[str, str]) -> StepResult:
    result = runner.run(place.inputs | inputs, env=place.environment)
    assert result.succeeded, result.log
    return result


def make_tarballs(runner: FakeRunner) -> None:
    for key, name in TARBALLS.items():
        tree = write_tree(runner.workspace / "trees" / key, {"bin/tool": key})
        (runner.workspace / "tarballs").mkdir(exist_ok=True)
        with tarfile.open(runner.workspace / "tarballs" / name, "w:gz") as archive:
            archive.add(tree, arcname=".")


def test_every_url_of_a_tarball_gives_its_bytes_also_with_a_plus_in_the_version(
    runner: FakeRunner, place: Place
) -> None:
    make_tarballs(runner)
    result = run(runner, place, {"mode": "upload-tarballs", "path": "tarballs"})
    urls = json.loads(result.outputs["tarball_urls"])
    assert {key: place.get(url) for key, url in urls.items()} == {
        key: (runner.workspace / "tarballs" / name).read_bytes() for key, name in TARBALLS.items()
    }
    assert all("+" not in url for url in urls.values())
    page = place.get(result.outputs["url"]).decode()
    assert all(f'href="./{name.replace("+", "%2B")}"' in page for name in TARBALLS.values())


@pytest.mark.needs("curl")
def test_the_summarys_commands_fetch_and_unpack_each_tarball(runner: FakeRunner, place: Place, tmp_path: Path) -> None:
    make_tarballs(runner)
    summary = run(runner, place, {"mode": "upload-tarballs", "path": "tarballs"}).summary
    (fence,) = [token for token in markdown.parse(summary) if token.type == "fence"]
    folder = runner.workspace if "staging_dir" in place.inputs else tmp_path / "a person's"
    folder.mkdir(exist_ok=True)
    assert (AWS in fence.content) == ("staging_dir" not in place.inputs)
    subprocess.run(["sh", "-ec", fence.content.replace(AWS, place.url)], cwd=folder, check=True, timeout=60)
    assert {key: (folder / f"therock-{key}" / "bin" / "tool").read_text() for key in TARBALLS} == {
        key: key for key in TARBALLS
    }


def test_the_urls_of_one_manifest_and_of_the_page_of_several_open(runner: FakeRunner, place: Place) -> None:
    names = ["therock-manifest_jax_py3.13_rel+1.json", "therock-manifest_torch_py3.12_release-2.9.json"]
    inputs = {"mode": "upload-manifest", "path": "dist", "family": "gfx1151"}
    write_tree(runner.workspace / "dist" / "manifests", {names[0]: '{"a": 1}'})
    url = run(runner, place, inputs).outputs["manifest_url"]
    assert json.loads(place.get(url)) == {"a": 1}
    write_tree(runner.workspace / "dist" / "manifests", {names[1]: "{}"})
    url = run(runner, place, inputs).outputs["manifest_url"]
    page = place.get(url).decode()
    assert all(f'href="./{name.replace("+", "%2B")}"' in page for name in names)


def test_every_file_of_a_report_is_served_as_what_it_is(runner: FakeRunner, place: Place) -> None:
    write_tree(runner.workspace / "report", REPORT)
    result = run(runner, place, {"mode": "upload-report", "path": "report", "subfolder": "manifest-diff"})
    folder = result.outputs["report_url"].removesuffix("index.html")
    assert place.get(result.outputs["report_url"]).decode() == REPORT["index.html"]
    for name, kind in {
        "style/main.css": "text/css",
        "script/main.js": "text/javascript",
        "p.svg": "image/svg+xml",
    }.items():
        with urllib.request.urlopen(place.local(folder + name), timeout=20) as answer:
            assert answer.read().decode() == REPORT[name]
            if "staging_dir" not in place.inputs:
                assert answer.headers.get_content_type() == kind


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"path": "report"}, "index.html"),
        ({"path": "report/pages/a + b#.html"}, "a + b#.html"),
        ({"path": "report", "include": "pages/*.html", "index": "none"}, "pages/a + b#.html"),
        ({"path": "report", "include": "*.css"}, "index.html"),
    ],
    ids=["its own page", "one file", "its only HTML file", "a page that is made"],
)
def test_what_the_summary_says_of_a_staged_report_opens_its_page(
    runner: FakeRunner, inputs: dict[str, str], name: str
) -> None:
    write_tree(runner.workspace / "report", REPORT)
    mode = {"mode": "upload-report", "subfolder": "my report", "staging_dir": "out"}
    result = runner.run(mode | inputs)
    assert result.succeeded, result.log
    line, address = (token.content.strip() for token in markdown.parse(result.summary) if token.type == "fence")
    command, *arguments = shlex.split(line)
    assert (command, arguments.count("8000")) == ("python3", 1)
    arguments[arguments.index("8000")] = "0"  # any that is free here
    with subprocess.Popen(
        [sys.executable, "-u", *arguments], cwd=runner.workspace, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            base = re.search(rb"http://127\.0\.0\.1:[0-9]+", server.stdout.readline())
            assert base is not None
            assert address.startswith("http://127.0.0.1:8000/")
            with urllib.request.urlopen(base[0].decode() + urlsplit(address).path, timeout=20) as answer:
                page = answer.read()
        finally:
            server.terminate()
    assert page == (runner.workspace / "out" / P / "logs/my report" / name).read_bytes()
    assert urlsplit(result.outputs["report_url"]).path == f"/{P}/logs/my%20report{urlsplit(address).path}"


@contextmanager
def browser_page() -> Iterator[Any]:
    """A page of a headless Chromium, without the machine's proxy and without any call of its own."""
    from playwright.sync_api import sync_playwright

    arguments = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-proxy-server",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        try:
            yield browser.new_page()
        finally:
            browser.close()


@pytest.mark.needs("chromium")
@pytest.mark.slow
def test_a_report_works_in_a_browser_with_its_styles_scripts_pictures_and_links(
    runner: FakeRunner, place: Place
) -> None:
    write_tree(runner.workspace / "report", REPORT)
    result = run(runner, place, {"mode": "upload-report", "path": "report", "subfolder": "manifest-diff"})
    answers: dict[str, int] = {}
    with browser_page() as page:
        page.on(
            "response", lambda answer: answers.setdefault(urlsplit(answer.url).path.rpartition("/")[2], answer.status)
        )
        page.goto(place.local(result.outputs["report_url"]))
        assert page.inner_text("#p") == "scripted"
        assert page.evaluate("getComputedStyle(document.getElementById('p')).color") == "rgb(1, 2, 3)"
        assert page.evaluate("document.querySelector('img').naturalWidth") == 7
        page.click("a")
        page.wait_for_load_state()
        assert page.inner_text("#p") == "second"
        assert page.evaluate("getComputedStyle(document.getElementById('p')).color") == "rgb(1, 2, 3)"
    assert answers == dict.fromkeys(["index.html", "main.css", "main.js", "p.svg", "a%20%2B%20b%23.html"], 200)


@pytest.mark.needs("chromium")
@pytest.mark.slow
def test_on_the_page_that_is_made_for_a_report_every_link_opens(runner: FakeRunner, place: Place) -> None:
    files = {name: text for name, text in REPORT.items() if name != "index.html"}
    files |= {"<script>alert(1)</script>?.html": "x", "100% 'x' \"y\" \u00e9.html": "x"}
    write_tree(runner.workspace / "report", files)
    result = run(runner, place, {"mode": "upload-report", "path": "report", "subfolder": "manifest-diff"})
    with browser_page() as page:
        page.on("dialog", lambda _dialog: pytest.fail("a name was run as a script"))
        page.goto(place.local(result.outputs["report_url"]))
        targets = page.eval_on_selector_all("a[href^='./']", "links => links.map(link => link.href)")
        assert len(targets) == len(files)
        for target in targets:
            with urllib.request.urlopen(target, timeout=20) as answer:
                assert answer.status == 200
