"""Mode index on S3 servers: the same bytes as in a staging folder, and two jobs at once that lose nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from _therock_utils._errors import ConflictError, NotFoundError
from _therock_utils.storage_backend import create_storage_backend
from fakes.contexts import make_context
from fakes.s3_environment import use_endpoint
from fakes.trees import digest, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

    from therock_outputs.report import Report

BUCKET, P = "therock-ci-artifacts", "100-linux"
ROUNDS = 10


@dataclass(frozen=True)
class Cloud:
    """A bucket on a server of this machine, empty at first."""

    client: S3Client

    def names(self, prefix: str = f"{P}/") -> list[str]:
        """Keys below `prefix`, relative to it, but for run records."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"].removeprefix(prefix) for page in pages for entry in page.get("Contents", [])]
        return [key for key in keys if not key.startswith("reports/")]

    def get(self, name: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=f"{P}/{name}")["Body"].read()

    def put(self, *names: str) -> None:
        for name in names:
            self.client.put_object(Bucket=BUCKET, Key=f"{P}/{name}", Body=name.encode())

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{P}/{name}")

    def check(self) -> None:
        """Every folder's page and list name what is there and nothing else."""
        keys = self.names()
        folders = {""}
        for key in keys:
            while key := key.rpartition("/")[0]:
                folders.add(key)
        for folder in folders:
            start = f"{folder}/" if folder else ""
            below = [key.removeprefix(start) for key in keys if key.startswith(start)]
            inside = sorted({f"{name.partition('/')[0]}/index.html" for name in below if "/" in name})
            files = sorted(name for name in below if "/" not in name and name not in {"index.html", "index.json"})
            document = json.loads(self.get(f"{start}index.json"))
            assert [f"{entry['name']}/index.html" for entry in document["folders"]] == inside
            assert [entry["name"] for entry in document["files"]] == files
            links = [link.removeprefix("./") for link in Links(self.get(f"{start}index.html")).hrefs]
            assert [link for link in links if not link.startswith("../")] == inside + files


class Links(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [unquote(value or "") for name, value in attrs if tag == "a" and name == "href"]


@pytest.fixture(params=["moto", pytest.param("ministack", marks=[pytest.mark.needs("ministack")])])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    import boto3

    url = request.getfixturevalue(f"{request.param}_url")
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "INPUT_", "RUNNER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("RELEASE_TYPE", raising=False)
    use_endpoint(monkeypatch, url)
    session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    with closing(session.client("s3", endpoint_url=url)) as client:
        client.create_bucket(Bucket=BUCKET)
        yield Cloud(client)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        for key in [entry["Key"] for page in pages for entry in page.get("Contents", [])]:
            client.delete_object(Bucket=BUCKET, Key=key)
        client.delete_bucket(Bucket=BUCKET)


def run(workspace: Path, mode: Mode = Mode.INDEX, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    """One step in this process, on S3."""
    inputs = {"lookup": "false"} | inputs
    context = make_context(workspace, mode, backend=create_storage_backend(), **inputs)
    return load_mode(mode).run(dataclasses.replace(context, staging_dir=None))


def test_the_pages_of_a_run_are_those_of_a_staging_folder_but_for_the_times(cloud: Cloud, tmp_path: Path) -> None:
    names = ["a+b 1.0.tar.gz", "logs/g/<script>#?%.log", "logs/g/é/漢字.log", "python/x.whl", "a/b/c/d/e", "a-b", "a0"]
    cloud.put(*names)
    write_tree(tmp_path / "staged" / P, {name: name for name in names})
    assert run(tmp_path).error is None
    assert load_mode(Mode.INDEX).run(make_context(tmp_path, Mode.INDEX)).error is None
    cloud.check()
    pages = [key for key in cloud.names() if key not in names]
    assert len(pages) == 2 * 9
    staged = tmp_path / "staged" / P
    for page in pages:
        ours, theirs = cloud.get(page), (staged / page).read_bytes()
        if page.endswith(".json"):
            assert _without_times(ours) == _without_times(theirs)
        else:
            assert Links(ours).hrefs == Links(theirs).hrefs


def _without_times(data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(data)
    for entry in (*document["folders"], *document["files"]):
        del entry["modified"]
    return document


def test_the_page_types_are_those_a_browser_shows(cloud: Cloud, tmp_path: Path) -> None:
    cloud.put("logs/a.log")
    run(tmp_path)
    types = {name: cloud.client.head_object(Bucket=BUCKET, Key=f"{P}/logs/{name}")["ContentType"] for name in PAGES}
    assert types == {"index.html": "text/html; charset=utf-8", "index.json": "application/json"}


PAGES = ("index.html", "index.json")


def test_stale_pages_are_removed_and_a_second_run_changes_nothing(cloud: Cloud, tmp_path: Path) -> None:
    cloud.put("logs/g/a.log", "logs/h/b.log")
    run(tmp_path)
    cloud.delete("logs/h/b.log")
    assert run(tmp_path).error is None
    cloud.check()
    assert not [key for key in cloud.names() if key.startswith("logs/h/")]
    tags = {entry["Key"]: entry["ETag"] for entry in cloud.client.list_objects_v2(Bucket=BUCKET)["Contents"]}
    report = run(tmp_path)
    assert len(report.result.stored) == 6
    after = {entry["Key"]: entry["ETag"] for entry in cloud.client.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert tags.items() <= after.items()
    assert run(tmp_path, Mode.VERIFY, check="read").outputs["extra_count"] == "1"  # logs/g/a.log; no page is extra


def test_digests_are_those_of_the_runs_records(cloud: Cloud, tmp_path: Path) -> None:
    write_tree(tmp_path / "build", {"logs/a.log": "a\n"})
    assert run(tmp_path, Mode.UPLOAD_BUILD, artifact_group="g", if_no_files_found="ignore").error is None
    assert run(tmp_path).error is None
    (entry,) = json.loads(cloud.get("logs/g/index.json"))["files"]
    assert (entry["name"], entry["sha256"]) == ("a.log", digest("a\n"))


@pytest.mark.parametrize("cloud", ["moto"], indirect=True)
def test_an_empty_run_is_not_found(cloud: Cloud, tmp_path: Path) -> None:
    cloud.put("../100-linux2/logs/a.log")
    with pytest.raises(NotFoundError, match="run 100 has no outputs under"):
        run(tmp_path)


JOB = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3].split(":")
import test_index as tests
from _therock_utils.storage_backend import create_storage_backend
from _therock_utils.storage_location import StorageLocation
backend, me = create_storage_backend(), sys.argv[2]
for number in range(tests.ROUNDS):
    for name in (f"logs/{me}/{number}.log", f"logs/both/{me}-{number}.log", f"{me}-{number}"):
        backend.put_new(StorageLocation(tests.BUCKET, f"{tests.P}/{name}"), name.encode(), "text/plain")
    report = tests.run(Path(sys.argv[1]))
    assert report.error is None, report.error
    print(len(report.result.stored))
"""


@pytest.mark.slow
def test_two_jobs_that_store_and_index_at_once_are_both_on_every_page(cloud: Cloud, tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = ":".join(map(str, (here, here.parent, here.parents[1] / "src")))
    command = [sys.executable, "-c", JOB, str(tmp_path)]
    jobs = [subprocess.Popen([*command, name, paths], stdout=subprocess.PIPE) for name in ("one", "two")]
    said = [job.communicate()[0].split() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    assert [len(lines) for lines in said] == [ROUNDS, ROUNDS]
    cloud.check()
    assert len(json.loads(cloud.get("logs/both/index.json"))["files"]) == 2 * ROUNDS


@pytest.mark.parametrize("cloud", ["moto"], indirect=True)
def test_a_page_that_changes_all_the_time_is_a_failure_that_names_it(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.put("logs/a.log")
    run(tmp_path)
    cloud.put("logs/b.log")
    backend = create_storage_backend()
    read_all_small = backend.read_all_small
    rounds = iter(range(100))

    def meddle(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - read_all_small's
        answers = read_all_small(*arguments, **options)
        page = cloud.get("logs/index.html").partition(b"<!--")[0] + b"<!-- %d -->" % next(rounds)
        cloud.client.put_object(Bucket=BUCKET, Key=f"{P}/logs/index.html", Body=page)
        return answers

    monkeypatch.setattr(backend, "read_all_small", meddle)
    context = make_context(tmp_path, Mode.INDEX, backend=backend, lookup="false")
    monkeypatch.setattr(context.cancel, "sleep", lambda _seconds: None)
    report = load_mode(Mode.INDEX).run(dataclasses.replace(context, staging_dir=None))
    assert isinstance(report.error, ConflictError)
    assert [item.path for item in report.result.failed] == [f"{P}/logs/index.html"]
