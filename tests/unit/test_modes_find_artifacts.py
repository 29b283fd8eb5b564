"""What find-artifacts takes for found: which runs it looks at, what they must hold, and what it says of them."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    GitHubError,
    InputError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
    ServiceUnavailableError,
)
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, make_context
from fakes.trees import write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import _find_runs, find_artifacts
from therock_outputs.modes._find_runs import RunSource
from therock_outputs.modes._find_search import MAX_ROWS, RunSearch
from therock_outputs.modes._find_wants import read_wants
from therock_outputs.render_outputs import MAX_OUTPUTS_BYTES, render_document, render_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from _therock_utils._transfer_types import ListedObject
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._find_search import Findings
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

NAME = "ROCm/TheRock"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"
GENERIC = "hip_lib_generic.tar.zst"
GFX94X = "blas_lib_gfx94X-dcgpu.tar.xz"
GFX942 = "blas_lib_gfx942.tar.zst"
GFX1151 = "blas_lib_gfx1151.tar.zst"


def record(run_id: int, **changes: object) -> dict[str, Any]:
    return {
        "id": run_id,
        "repository": {"full_name": NAME},
        "head_repository": {"full_name": NAME},
        "head_sha": COMMIT,
        "head_branch": "main",
        "status": "completed",
        "conclusion": "success",
        "run_attempt": 1,
        "created_at": "2026-11-30T12:00:00Z",
        "updated_at": "2026-11-30T13:00:00Z",
    } | changes


class GitHub:
    """Stands for the API: records newest first, and what was asked. `page` records are read at once."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []
        self.given: list[int] = []
        self.notices: tuple[str, ...] = ()
        self.error: OutputsError | None = None
        self.error_behind: int = 0  # records that are given before the error

    def workflow_runs(
        self,
        repository: object,
        workflow: str,
        *,
        head_sha: str,
        branch: str,
        token: str,
        wait: Callable[[float, str], None],
        notice: Callable[[str], None],
    ) -> Generator[Mapping[str, object], None, None]:
        self.asked.append({"workflow": workflow, "head_sha": head_sha, "branch": branch, "token": token})
        for text in self.notices:
            notice(text)
        for number, one in enumerate(list(self.records)):
            if self.error is not None and number == self.error_behind:
                raise self.error
            self.given.append(one["id"])
            yield one
        if self.error is not None and self.error_behind >= len(self.records):
            raise self.error

    def fetch_workflow_run(self, repository: object, run_id: str, **options: object) -> Mapping[str, object]:
        self.asked.append({"run_id": run_id, "cached": str(options["cached"])})
        return next(one for one in self.records if one["id"] == int(run_id))

    def resolve_commit(self, repository: object, commit: str, **options: object) -> str:
        self.asked.append({"commit": commit})
        return COMMIT


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> GitHub:
    fake = GitHub()
    for name in ("workflow_runs", "fetch_workflow_run", "resolve_commit"):
        monkeypatch.setattr(_find_runs, name, getattr(fake, name))
    return fake


class Storage(LocalStorageBackend):
    """A staging folder that counts listings and may refuse to list a run."""

    def __init__(self, staging_dir: Path, *, refusals: Mapping[str, OutputsError] | None = None) -> None:
        super().__init__(staging_dir)
        self.listed: list[str] = []
        self.refusals = dict(refusals or {})

    def list_folder(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        self.listed.append(location.relative_path)
        if location.relative_path in self.refusals:
            raise self.refusals[location.relative_path]
        return super().list_folder(location, cancel=cancel)


def store(workspace: Path, run_id: int, *names: str, prefix: str = "") -> None:
    write_tree(workspace / STAGED / f"{prefix}{run_id}-linux", dict.fromkeys(names, "12345"))


def search(workspace: Path, *, backend: Storage | None = None, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    """Look for COMMIT, unless `inputs` say otherwise, with outputs in the staging folder."""
    if not {"branch", "run_id"} & inputs.keys():
        inputs = {"commit": COMMIT} | inputs
    (workspace / STAGED).mkdir(exist_ok=True)
    context = make_context(workspace, Mode.FIND_ARTIFACTS, backend=backend, **({"run_id": ""} | inputs))
    return find_artifacts.run(context)


def found(report: Report) -> list[str]:
    """The runs that were found; the outputs agree on whether there are any."""
    runs = [one["run_id"] for one in json.loads(report.outputs["runs"])]
    assert report.outputs["found"] == str(bool(runs)).lower()
    assert report.outputs["found_run_id"] == (runs[0] if runs else "")
    assert (report.root.run_id if report.root is not None else "") == report.outputs["found_run_id"]
    assert (report.error, report.exit_code) == (None, 0)
    return runs


def rows(report: Report) -> dict[str, tuple[str, str]]:
    """What the table says that each run holds and lacks."""
    (table,) = report.tables
    return {row[0]: (row[3], row[4]) for row in table.rows}


# What is asked for


@pytest.mark.parametrize(
    ("inputs", "held", "is_found"),
    [
        ({}, [GENERIC], True),
        ({}, [], False),
        ({}, ["logs.tar.gz", "hip_lib_generic.tar.zst.sha256sum", "logs/x_lib_generic.tar.xz"], False),
        ({"artifact_group": "gfx94X-dcgpu"}, [GFX94X], True),
        ({"artifact_group": "gfx94X-dcgpu"}, [GFX942], True),
        ({"artifact_group": "gfx94X-dcgpu"}, [GENERIC], False),
        ({"artifact_group": "gfx94X-dcgpu"}, [GENERIC, GFX1151], False),
        ({"artifact_group": "gfx94X-dcgpu,gfx1151"}, [GFX942, GFX1151], True),
        ({"artifact_group": "gfx94X-dcgpu,gfx1151"}, [GFX942, GENERIC], False),
        ({"families": "gfx94X-dcgpu"}, ["blas_lib_gfx942:xnack+.tar.zst"], True),
        ({"targets": "gfx942"}, [GFX942], True),
        ({"targets": "gfx942"}, [GFX94X], False),
        ({"targets": "gfx942,gfx1151"}, [GFX942], False),
        ({"generic_only": "true"}, [GENERIC], True),
        ({"generic_only": "true"}, [GFX942], False),
        ({"artifacts": "hip"}, [GENERIC], True),
        ({"artifacts": "hip,blas_dev"}, [GENERIC, GFX942], False),
        ({"artifacts": "hip,blas_lib"}, [GENERIC, GFX942], True),
        ({"artifacts": "hip", "families": "gfx94X-dcgpu"}, [GENERIC, GFX942], True),
        ({"artifacts": "blas", "targets": "gfx942"}, [GFX1151, "rand_lib_gfx942.tar.zst"], False),
        ({"include_regex": "^hip_\n\\.zst$"}, [GENERIC], True),
        ({"include_regex": "^hip_\n^blas_"}, [GENERIC], False),
        ({"include_regex": "hip_.*\\.xz$"}, [GENERIC, "hip_lib_generic.tar.xz"], True),
        ({"include_regex": "^blas_", "artifact_group": "gfx94X-dcgpu,gfx1151"}, [GFX942, "x_lib_gfx1151.tar.xz"], True),
        ({"exclude_artifacts": "hip"}, [GENERIC], False),
        ({"exclude_components": "lib", "targets": "gfx942"}, [GFX942, "blas_dev_gfx942.tar.zst"], True),
        ({"exclude_components": "lib", "targets": "gfx942"}, [GFX942], False),
        ({"exclude_regex": "gfx942", "targets": "gfx942"}, [GFX942], False),
        ({"targets": "generic"}, [GFX942], False),
        ({"targets": "generic"}, [GENERIC], True),
    ],
)
def test_a_run_is_found_when_it_holds_everything_that_is_asked_for(
    tmp_path: Path, github: GitHub, inputs: dict[str, str], held: list[str], is_found: bool
) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, *held)
    assert found(search(tmp_path, **inputs)) == (["7"] if is_found else [])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"commit": ""}, "one of commit, branch and run_id"),
        ({"branch": "main"}, "one of commit, branch and run_id"),
        ({"run_id": "7"}, "one of commit, branch and run_id"),
        ({"commit": "main"}, "hex digits"),
        ({"commit": "abc"}, "hex digits"),
        ({"commit": "0" * 41}, "hex digits"),
        ({"commit": "", "branch": "a//b"}, "branch 'a//b'"),
        ({"commit": "", "branch": "refs/heads/"}, "it is empty"),
        ({"commit": "", "run_id": "7/8"}, "run_id '7/8'"),
        ({"platform": "linux,windows"}, "platform is a list"),
        ({"platform": "amiga"}, "platform 'amiga'"),
        ({"repository": "TheRock"}, "owner/name"),
        ({"artifact_group": "a/b"}, "artifact_group 'a/b'"),
        ({"artifact_group": "index.html"}, "artifact_group 'index.html'"),
        ({"artifacts": "a/b"}, "'a/b'"),
        ({"include_regex": "("}, "regular expression '('"),
        ({"generic_only": "true", "families": "gfx94X-dcgpu"}, "generic_only"),
        ({"generic_only": "true", "artifact_group": "gfx94X-dcgpu"}, "generic_only"),
        ({"workflow": "a/b"}, "workflow 'a/b'"),
        ({"commit": "", "run_id": "7", "workflow": "a/b"}, "workflow 'a/b'"),
        ({"bucket": "No Bucket"}, "bucket"),
        ({"release_type": "weekly"}, "weekly"),
        ({"lookup": "false"}, "only by asking GitHub"),
        ({"commit": "", "run_id": "7", "require_successful_run": "true", "lookup": "false"}, "only by asking GitHub"),
    ],
)
def test_what_cannot_be_searched_for_is_one_error_before_github_is_asked(
    tmp_path: Path, github: GitHub, inputs: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        search(tmp_path, **({"commit": COMMIT} | inputs))
    assert words in str(caught.value)
    assert github.asked == []


def test_an_unknown_family_is_told_of_and_stands_for_itself(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, "blas_lib_gfx9999.tar.zst")
    report = search(tmp_path, families="gfx9999")
    assert found(report) == ["7"]
    assert any("gfx9999" in notice for notice in report.notices)


# Which runs


def test_the_newest_run_that_holds_it_is_found_and_no_older_one_is_looked_at(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(run_id) for run_id in (9, 8, 7)]
    for run_id in (8, 7):
        store(tmp_path, run_id, GFX942)
    storage = Storage(tmp_path / STAGED)
    report = search(tmp_path, backend=storage, targets="gfx942")
    assert found(report) == ["8"]
    assert rows(report) == {"9": ("0 archives", "gfx942"), "8": ("1 archive: gfx942", "")}


def test_a_commit_is_asked_for_with_workflow_and_token(tmp_path: Path, github: GitHub) -> None:
    search(tmp_path, workflow="ci.yml", github_token="secret", commit=COMMIT.upper())
    assert github.asked == [{"workflow": "ci.yml", "head_sha": COMMIT, "branch": "", "token": "secret"}]


def test_a_short_commit_is_resolved_first(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, GENERIC)
    report = search(tmp_path, commit="01234567")
    assert found(report) == ["7"]
    assert github.asked[0] == {"commit": "01234567"}
    assert github.asked[1]["head_sha"] == COMMIT
    assert report.subject == "commit 0123456789ab"


@pytest.mark.parametrize("branch", ["users/x/y", "refs/heads/users/x/y"])
def test_a_branch_is_asked_for_by_its_name(tmp_path: Path, github: GitHub, branch: str) -> None:
    github.records = [record(7, head_branch="users/x/y")]
    store(tmp_path, 7, GENERIC)
    assert found(search(tmp_path, branch=branch)) == ["7"]
    assert github.asked[0]["branch"] == "users/x/y"


def test_the_runs_of_a_commit_hold_it_together_and_each_says_what_it_holds(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(run_id) for run_id in (9, 8, 7, 6)]
    store(tmp_path, 9, GENERIC, GFX942)
    store(tmp_path, 8, GFX942)
    store(tmp_path, 7, GFX1151)
    store(tmp_path, 6, GFX942, GFX1151)
    report = search(tmp_path, artifact_group="gfx94X-dcgpu,gfx1151", artifacts="hip")
    assert found(report) == ["9", "7"]
    first, second = json.loads(report.outputs["runs"])
    assert (first["groups"], first["missing"]) == (["gfx94X-dcgpu"], ["gfx1151"])
    assert (second["groups"], second["missing"]) == (["gfx1151"], ["gfx94X-dcgpu", "hip"])
    assert first["archives"] == [GFX942, GENERIC]
    assert any("2 runs of the commit hold it together" in notice for notice in report.notices)
    assert [(part.what, part.file_count, part.note) for part in report.parts] == [
        ("Run 9", 2, "in staged/9-linux; without gfx1151"),
        ("Run 7", 1, "in staged/7-linux; without gfx94X-dcgpu, hip"),
    ]
    assert sorted(item.location.relative_path for item in report.result.stored) == [
        f"7-linux/{GFX1151}",
        f"9-linux/{GFX942}",
        f"9-linux/{GENERIC}",
    ]


def test_where_one_run_must_hold_it_all_others_do_not_help(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(run_id) for run_id in (9, 8, 7)]
    store(tmp_path, 9, GFX942)
    store(tmp_path, 8, GFX1151)
    asked = {"artifact_group": "gfx94X-dcgpu,gfx1151", "require_single_run": "true"}
    report = search(tmp_path, **asked)
    assert found(report) == []
    store(tmp_path, 7, GFX942, GFX1151)
    assert found(search(tmp_path, **asked)) == ["7"]
    assert "together" not in "".join(report.notices)


def test_a_run_that_did_not_succeed_is_passed_over_where_success_is_wanted(tmp_path: Path, github: GitHub) -> None:
    github.records = [
        record(9, status="in_progress", conclusion=None),
        record(8, conclusion="failure"),
        record(7, status="queued", conclusion="success"),
        record(6),
    ]
    for run_id in (9, 8, 7, 6):
        store(tmp_path, run_id, GENERIC)
    assert found(search(tmp_path)) == ["9"]
    report = search(tmp_path, require_successful_run="true")
    assert found(report) == ["6"]
    assert rows(report) == {
        "9": ("", "passed over: it is under way"),
        "8": ("", "passed over: it did not succeed (failure)"),
        "7": ("", "passed over: it is under way"),
        "6": ("1 archive: an artifact", ""),
    }


def test_on_a_branch_runs_count_together_only_within_one_commit(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9), record(8, head_sha=OTHER), record(7, head_sha=OTHER), record(6)]
    store(tmp_path, 9, GFX942)
    store(tmp_path, 8, GFX1151)
    store(tmp_path, 7, GFX942)
    store(tmp_path, 6, GFX1151)
    report = search(tmp_path, branch="main", targets="gfx942,gfx1151")
    assert found(report) == ["8", "7"]
    assert {one["head_sha"] for one in json.loads(report.outputs["runs"])} == {OTHER}


def test_runs_without_a_sha_never_count_together(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9, head_sha=None), record(8, head_sha="x")]
    store(tmp_path, 9, GFX942)
    store(tmp_path, 8, GFX1151)
    assert found(search(tmp_path, branch="main", targets="gfx942,gfx1151")) == []


@pytest.mark.parametrize("head", [{"full_name": "someone/TheRock"}, None])
def test_a_forks_branch_of_the_same_name_is_not_that_branch(tmp_path: Path, github: GitHub, head: object) -> None:
    github.records = [record(9, head_repository=head), record(8, head_branch="mainly"), record(7)]
    for run_id in (8, 7):
        store(tmp_path, run_id, GENERIC)
    store(tmp_path, 9, GENERIC, prefix="ROCm-TheRock/")
    report = search(tmp_path, branch="main")
    assert found(report) == ["7"]
    assert "fork" in rows(report)["9"][1]
    assert "another branch" in rows(report)["8"][1]


@pytest.mark.parametrize("head", [{"full_name": "someone/TheRock"}, None])
def test_a_forks_run_of_the_commit_is_found_in_the_external_bucket(
    tmp_path: Path, github: GitHub, head: object
) -> None:
    github.records = [record(9, head_repository=head)]
    store(tmp_path, 9, GENERIC, prefix="ROCm-TheRock/")
    report = search(tmp_path)
    assert found(report) == ["9"]
    assert report.root is not None
    assert report.root.root().s3_uri == "s3://therock-ci-artifacts-external/ROCm-TheRock/9-linux"


def test_a_run_of_another_commit_is_passed_over_whoever_lists_it(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9, head_sha=OTHER)]
    store(tmp_path, 9, GENERIC)
    report = search(tmp_path)
    assert found(report) == []
    assert "another commit" in rows(report)["9"][1]


def test_bucket_and_release_type_lead_to_other_places(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, GENERIC)
    nightly = search(tmp_path, release_type="nightly")
    own = search(tmp_path, bucket="own-bucket")
    assert [report.root.bucket for report in (nightly, own) if report.root is not None] == [
        "therock-nightly-artifacts",
        "own-bucket",
    ]


def test_the_jobs_release_type_is_used_with_a_notice(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, GENERIC)
    report = search(tmp_path, environment={"RELEASE_TYPE": "nightly"})
    assert report.root is not None
    assert report.root.bucket == "therock-nightly-artifacts"
    assert any("RELEASE_TYPE" in notice for notice in report.notices)
    said = search(tmp_path, environment={"RELEASE_TYPE": "nightly"}, release_type="nightly")
    assert not any("RELEASE_TYPE" in notice for notice in said.notices)


# One run


def test_one_run_in_a_staging_folder_is_checked_without_github(tmp_path: Path, github: GitHub) -> None:
    store(tmp_path, 7, GENERIC)
    report = search(tmp_path, run_id="7", staging_dir=STAGED)
    assert found(report) == ["7"]
    assert github.asked == []
    assert report.notices == ()
    (facts,) = json.loads(report.outputs["runs"])
    assert (facts["head_sha"], facts["status"], facts["repository"]) == ("", "", NAME)
    assert facts["html_url"] == "https://github.com/ROCm/TheRock/actions/runs/7"


def test_a_local_run_has_no_page_at_github(tmp_path: Path, github: GitHub) -> None:
    write_tree(tmp_path / STAGED / "local-linux", {GENERIC: "1"})
    (facts,) = json.loads(search(tmp_path, run_id="local", staging_dir=STAGED).outputs["runs"])
    assert (facts["run_id"], facts["html_url"]) == ("local", "")


def test_one_run_is_looked_up_anew_and_alone(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(8), record(7, head_repository=None, head_branch="topic")]
    store(tmp_path, 7, GENERIC, prefix="ROCm-TheRock/")
    report = search(tmp_path, run_id="7", staging_dir=STAGED, lookup="true")
    assert found(report) == ["7"]
    assert github.asked == [{"run_id": "7", "cached": "False"}]
    assert json.loads(report.outputs["runs"])[0]["head_branch"] == "topic"


def test_a_workflow_that_was_set_beside_a_run_is_warned_about(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, GENERIC)
    for run_id, workflow, is_warned in [
        ("7", "ci.yml", True),
        ("7", "multi_arch_ci.yml", False),
        ("", "ci.yml", False),
    ]:
        inputs = {"run_id": run_id} if run_id else {}
        report = search(tmp_path, workflow=workflow, lookup="true", **inputs)
        assert any("input workflow is not used" in warning for warning in report.warnings) == is_warned


def test_what_is_waited_for_at_github_is_told_with_its_cause(
    tmp_path: Path, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(repository: object, commit: str, *, token: str, wait: Callable[[float, str], None]) -> str:
        wait(2.4, "the connection was refused")
        return COMMIT

    said: list[str] = []
    monkeypatch.setattr(_find_runs, "resolve_commit", resolve)
    monkeypatch.setattr(CancelToken, "sleep", lambda _token, seconds: said.append(f"slept {seconds}"))
    (tmp_path / STAGED).mkdir()
    find_artifacts.run(make_context(tmp_path, Mode.FIND_ARTIFACTS, said=said, run_id="", commit="01234567"))
    assert said == ["GitHub's API: the connection was refused: asking again in 2.4 s", "slept 2.4"]


def test_one_run_that_did_not_succeed_is_not_found_where_success_is_wanted(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7, conclusion="failure")]
    store(tmp_path, 7, GENERIC)
    report = search(tmp_path, run_id="7", require_successful_run="true", lookup="true")
    assert found(report) == []
    assert "not found: run 7 (failure), was passed over: it did not succeed (failure)" in report.notices[-1]


# What is not known is no answer


@pytest.mark.parametrize(
    "error",
    [NotPermittedError("denied"), BucketNotFoundError("no bucket"), ServiceUnavailableError("unreachable")],
    ids=lambda error: type(error).__name__,
)
def test_a_run_that_cannot_be_listed_is_a_failure_unless_a_newer_one_holds_it(
    tmp_path: Path, github: GitHub, error: OutputsError
) -> None:
    github.records = [record(9), record(8)]
    storage = Storage(tmp_path / STAGED, refusals={"8-linux": error})
    store(tmp_path, 9, GFX1151)
    with pytest.raises(type(error)):
        search(tmp_path, backend=storage, targets="gfx942,gfx1151")
    store(tmp_path, 9, GFX942)
    assert found(search(tmp_path, backend=storage, targets="gfx942,gfx1151")) == ["9"]


def test_a_failure_of_github_is_a_failure(tmp_path: Path, github: GitHub) -> None:
    github.error = GitHubError("no answer")
    with pytest.raises(GitHubError):
        search(tmp_path)


UNREADABLE = [
    {"repository": ["no", "name"]},
    {"repository": 5},
    {"repository": {"full_name": "../x"}},
    {"updated_at": "nonsense"},
]


@pytest.mark.parametrize("changes", UNREADABLE)
def test_a_run_whose_record_cannot_be_read_is_left_out_by_name_where_another_holds_it(
    tmp_path: Path, github: GitHub, changes: dict[str, object]
) -> None:
    github.records = [record(9, **changes), record(8)]
    store(tmp_path, 8, GENERIC)
    report = search(tmp_path)
    assert found(report) == ["8"]
    assert [notice for notice in report.notices if notice.startswith("run 9 is left out: its record cannot be read: ")]
    assert rows(report)["9"][1].startswith("passed over: its record cannot be read: ")


@pytest.mark.parametrize("changes", UNREADABLE)
def test_where_no_run_holds_it_and_a_record_cannot_be_read_it_cannot_be_told(
    tmp_path: Path, github: GitHub, changes: dict[str, object]
) -> None:
    github.records = [record(9, **changes), record(8), record(7, **changes)]
    store(tmp_path, 8, GFX1151)
    with pytest.raises(GitHubError) as caught:
        search(tmp_path, targets="gfx942")
    assert "2 runs" in caught.value.what
    assert "run 9: its record cannot be read: " in caught.value.why
    assert "run 7: its record cannot be read: " in caught.value.why
    assert caught.value.exit_code == 7


def test_many_records_that_cannot_be_read_flood_nothing(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(run_id, updated_at="nonsense") for run_id in range(999, 899, -1)]
    with pytest.raises(GitHubError) as caught:
        search(tmp_path)
    assert "100 runs" in caught.value.what
    assert caught.value.why.endswith("; and 92 more")
    github.records.append(record(7))
    store(tmp_path, 7, GENERIC)
    report = search(tmp_path)
    assert found(report) == ["7"]
    assert report.notices[-1] == "80 more runs are left out: their records cannot be read"


@pytest.mark.parametrize(
    ("changes", "inputs"),
    [
        ({"head_sha": OTHER}, {}),
        ({"head_branch": "topic"}, {"branch": "main"}),
        ({"head_repository": None}, {"branch": "main"}),
        ({"conclusion": "failure"}, {"require_successful_run": "true"}),
    ],
)
def test_of_a_run_that_is_passed_over_nobody_reads_where_its_outputs_are(
    tmp_path: Path, github: GitHub, changes: dict[str, object], inputs: dict[str, str]
) -> None:
    github.records = [record(9, updated_at="nonsense", **changes)]
    report = search(tmp_path, **inputs)
    assert found(report) == []
    assert not any("left out" in notice for notice in report.notices)


def test_one_run_whose_record_cannot_be_read_is_a_failure_that_names_it(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7, updated_at="nonsense")]
    store(tmp_path, 7, GENERIC)
    with pytest.raises(GitHubError, match="run 7: its record cannot be read: updated_at 'nonsense' is no time"):
        search(tmp_path, run_id="7", lookup="true")


def test_a_staging_folder_that_is_not_there_is_no_answer(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9)]
    context = make_context(tmp_path, Mode.FIND_ARTIFACTS, run_id="", commit=COMMIT)
    with pytest.raises(NotFoundError) as caught:
        find_artifacts.run(context)
    assert caught.value.what == "there is no folder staged"
    assert "staging_dir" in caught.value.remedy
    assert github.asked == []
    (tmp_path / STAGED).mkdir()
    assert found(find_artifacts.run(context)) == []


def test_a_staging_folder_is_waited_for_and_then_told_of(tmp_path: Path, github: GitHub) -> None:
    context = make_context(tmp_path, Mode.FIND_ARTIFACTS, run_id="", commit=COMMIT, wait_seconds="0.01")
    with pytest.raises(NotFoundError, match="there is no folder staged"):
        find_artifacts.run(context)
    assert github.asked != []


def test_a_failure_behind_a_run_that_holds_it_does_not_matter(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9), record(8), record(7)]
    github.error, github.error_behind = GitHubError("no answer"), 2
    with pytest.raises(GitHubError):
        search(tmp_path)
    store(tmp_path, 8, GENERIC)
    storage = Storage(tmp_path / STAGED)
    assert found(search(tmp_path, backend=storage)) == ["8"]
    github.error = None
    storage.refusals["7-linux"] = NotPermittedError("denied")
    assert found(search(tmp_path, backend=storage)) == ["8"]


def test_runs_behind_the_newest_are_listed_four_at_the_same_time(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(run_id) for run_id in (9, 8, 7, 6, 5, 4)]
    store(tmp_path, 8, GENERIC)

    class Slow(Storage):
        """Lists only when three others are being listed, too."""

        barrier = threading.Barrier(4, timeout=30)

        def list_folder(
            self, location: StorageLocation, *, cancel: CancelToken | None = None
        ) -> Iterator[ListedObject]:
            if location.relative_path != "9-linux":
                self.barrier.wait()
            return super().list_folder(location, cancel=cancel)

    storage = Slow(tmp_path / STAGED)
    report = search(tmp_path, backend=storage)
    assert found(report) == ["8"]
    assert storage.listed[0] == "9-linux"
    assert sorted(storage.listed[1:]) == ["5-linux", "6-linux", "7-linux", "8-linux"]
    assert list(rows(report)) == ["9", "8"]


def test_a_signal_ends_the_search(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9), record(8)]
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError):
        search(tmp_path, cancel=cancel)


# What is said


def test_not_found_says_what_the_newest_run_lacks(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9, status="in_progress", conclusion=None), record(8)]
    store(tmp_path, 9, GFX942)
    store(tmp_path, 8, GFX1151)
    report = search(tmp_path, targets="gfx942,gfx1151,gfx1201")
    assert found(report) == []
    assert report.notices[-1] == (
        "not found: the newest run, 9 (in progress), lacks gfx1151, gfx1201; the runs of its commit together lack "
        "gfx1201 (2 runs looked at)"
    )
    assert (report.page, report.parts, report.result.stored) == (None, (), ())


def test_not_found_without_a_run_says_where_it_looked(tmp_path: Path, github: GitHub) -> None:
    report = search(tmp_path, workflow="ci.yml")
    assert report.notices[-1] == (
        "not found: ROCm/TheRock has no run of workflow 'ci.yml' for commit 0123456789ab (0 runs looked at)"
    )


def test_what_github_says_of_its_list_is_told(tmp_path: Path, github: GitHub) -> None:
    github.notices = ("told by GitHub", "told by GitHub")
    assert search(tmp_path).notices.count("told by GitHub") == 1


def test_the_table_has_fifty_rows_and_counts_the_rest(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(run_id) for run_id in range(1000, 900, -1)]
    (table,) = search(tmp_path).tables
    assert (len(table.rows), table.more) == (MAX_ROWS, 50)


def test_a_found_run_is_told_with_everything_about_it(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7, run_attempt=3)]
    store(tmp_path, 7, GFX942, GENERIC, "index-gfx94X-dcgpu.html")
    report = search(tmp_path, artifact_group="gfx94X-dcgpu")
    assert json.loads(report.outputs["runs"]) == [
        {
            "run_id": "7",
            "repository": NAME,
            "head_sha": COMMIT,
            "head_branch": "main",
            "status": "completed",
            "conclusion": "success",
            "attempt": 3,
            "created_at": "2026-11-30T12:00:00Z",
            "html_url": "https://github.com/ROCm/TheRock/actions/runs/7",
            "bucket": "therock-ci-artifacts",
            "prefix": "7-linux",
            "s3_uri": "s3://therock-ci-artifacts/7-linux",
            "artifact_index_url": "https://therock-ci-artifacts.s3.amazonaws.com/7-linux/index-gfx94X-dcgpu.html",
            "groups": ["gfx94X-dcgpu"],
            "missing": [],
            "archive_count": 2,
            "archives": [GFX942, GENERIC],
        }
    ]
    assert (report.verb, report.staging_dir, report.result.total_bytes) == ("found", None, 10)
    assert report.page is not None
    assert report.page.name == "index-gfx94X-dcgpu.html"


@pytest.mark.parametrize(
    ("files", "inputs", "page"),
    [
        ((), {}, "index.html"),  # the server writes it in the inventory's buckets
        ((), {"bucket": "own-bucket"}, None),
        (("index.html",), {"bucket": "own-bucket"}, "index.html"),
        (("index-gfx94X-dcgpu.html",), {"bucket": "own-bucket"}, None),  # nobody asked about that group
        (("index-gfx94X-dcgpu.html",), {"artifact_group": "gfx94X-dcgpu"}, "index-gfx94X-dcgpu.html"),
        (("index.html",), {"artifact_group": "gfx94X-dcgpu", "bucket": "own-bucket"}, "index.html"),
    ],
)
def test_a_page_is_named_only_where_it_is_stored_or_made_by_the_server(
    tmp_path: Path, github: GitHub, files: tuple[str, ...], inputs: dict[str, str], page: str | None
) -> None:
    github.records = [record(7)]
    store(tmp_path, 7, GFX942, *files)
    report = search(tmp_path, **inputs)
    assert (report.page.name if report.page is not None else None) == page
    (facts,) = json.loads(report.outputs["runs"])
    assert bool(facts["artifact_index_url"]) == (page is not None)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"head_branch": None}, {"head_branch": ""}),
        ({"head_branch": "x" * 9000}, {"head_branch": "x" * 255}),
        ({"status": "::error::x"}, {"status": ""}),
        ({"conclusion": ["x"]}, {"conclusion": ""}),
        ({"run_attempt": True}, {"attempt": 1}),
        ({"run_attempt": -3}, {"attempt": 1}),
        ({"run_attempt": "2"}, {"attempt": 1}),
        ({"created_at": "now\n"}, {"created_at": ""}),
        ({"html_url": "https://evil.example/"}, {"html_url": "https://github.com/ROCm/TheRock/actions/runs/7"}),
    ],
)
def test_only_what_is_as_github_says_it_is_passed_on(
    tmp_path: Path, github: GitHub, changes: dict[str, object], kept: dict[str, object]
) -> None:
    github.records = [record(7, **changes)]
    store(tmp_path, 7, GENERIC)
    (facts,) = json.loads(search(tmp_path).outputs["runs"])
    assert {name: facts[name] for name in kept} == kept


@pytest.mark.parametrize(
    ("server_url", "url"),
    [
        ("", "https://github.com/o/n/actions/runs/7"),
        ("https://github.com", "https://github.com/o/n/actions/runs/7"),
        ("http://ghes.example:8080/root/", "http://ghes.example:8080/root/o/n/actions/runs/7"),
        ("https://[::1]:80", "https://[::1]:80/o/n/actions/runs/7"),
        ("github.com", ""),
        ("javascript:alert(1)", ""),
        ("https://", ""),
        ("https://user@github.com", ""),
        ("https://github.com?x", ""),
        ("https://github.com#x", ""),
        ("https://github.com\n::error::x", ""),
        ("https://[broken", ""),
    ],
)
def test_a_runs_address_is_made_of_the_servers(server_url: str, url: str) -> None:
    assert find_artifacts.run_url(server_url, "o/n", "7") == url


def test_long_lists_of_archives_are_cut_in_the_outputs_and_whole_in_the_report(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9), record(8)]
    names = [f"a-library-with-a-long-name-{number}_lib_gfx942.tar.zst" for number in range(300)]
    store(tmp_path, 9, *names)
    store(tmp_path, 8, GFX1151)
    report = search(tmp_path, targets="gfx942,gfx1151")
    assert found(report) == ["9", "8"]
    first, second = json.loads(report.outputs["runs"])
    assert first["archive_count"] == 300
    assert 0 < len(first["archives"]) < 300
    assert second["archives"] == [GFX1151]
    outputs = render_outputs(report, report_path="x")
    assert outputs["truncated"] == "true"
    assert outputs["runs"]
    assert sum(len(name) + len(value) for name, value in outputs.items()) <= MAX_OUTPUTS_BYTES
    assert len(json.loads(render_document(report))["objects"]) == 301


# Waiting


class Clock:
    """Time that only sleeping moves; `events[n]` happens in the n-th pause."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.seconds = 0.0
        self.events = list(events)

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.events:
            self.events.pop(0)()


def waited(workspace: Path, storage: Storage, clock: Clock, said: list[str] | None = None, **inputs: Any) -> Findings:  # noqa: ANN401 - make_context's
    if not {"branch", "run_id"} & inputs.keys():
        inputs = {"commit": COMMIT} | inputs
    context = make_context(
        workspace,
        Mode.FIND_ARTIFACTS,
        backend=storage,
        said=said,
        **({"run_id": "", "wait_seconds": "600", "targets": "gfx942"} | inputs),
    )
    wants, _ = read_wants(context.settings)
    return RunSearch(context, RunSource(context), wants, context.open_backend()).find(now=clock.now, sleep=clock.sleep)


def test_it_waits_for_a_run_that_is_under_way_and_lists_finished_ones_once(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9, status="in_progress", conclusion=None), record(8), record(7)]
    storage = Storage(tmp_path / STAGED)
    said: list[str] = []
    clock = Clock(lambda: None, lambda: store(tmp_path, 9, GFX942))
    findings = waited(tmp_path, storage, clock, said)
    assert [holding.run.run_id for holding in findings.holdings] == ["9"]
    assert sorted(storage.listed) == ["7-linux", "8-linux", *["9-linux"] * 3]
    assert said[0] == "waiting, 600 s at most: the newest run, 9 (in progress), lacks gfx942"


def test_a_run_that_ends_is_listed_once_more_and_one_that_is_run_again_too(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9, status="in_progress", conclusion=None)]
    storage = Storage(tmp_path / STAGED)

    def end() -> None:
        github.records = [record(9)]

    def run_again() -> None:
        store(tmp_path, 9, GFX942)
        github.records = [record(9, run_attempt=2)]

    findings = waited(tmp_path, storage, Clock(end, lambda: None, run_again))
    assert [holding.run.attempt for holding in findings.holdings] == [2]
    assert storage.listed == ["9-linux"] * 3


def test_it_waits_for_a_run_that_is_not_there_yet(tmp_path: Path, github: GitHub) -> None:
    store(tmp_path, 9, GFX942)
    clock = Clock(lambda: github.records.append(record(9)))
    assert waited(tmp_path, Storage(tmp_path / STAGED), clock).holdings
    assert clock.seconds > 0


def test_after_the_time_it_is_not_found(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(9, status="in_progress", conclusion=None)]
    clock = Clock()
    findings = waited(tmp_path, Storage(tmp_path / STAGED), clock)
    assert (findings.holdings, clock.seconds) == ((), 600)
    assert findings.lacking


def test_for_one_run_that_is_finished_nobody_waits(tmp_path: Path, github: GitHub) -> None:
    github.records = [record(7)]
    clock = Clock()
    findings = waited(tmp_path, Storage(tmp_path / STAGED), clock, run_id="7", lookup="true")
    assert (findings.holdings, clock.seconds) == ((), 0)
    assert findings.lacking == "run 7 (success), lacks gfx942"


def test_one_run_under_way_is_waited_for_also_where_github_is_not_asked(tmp_path: Path, github: GitHub) -> None:
    clock = Clock(lambda: store(tmp_path, 7, GFX942))
    findings = waited(tmp_path, Storage(tmp_path / STAGED), clock, run_id="7", staging_dir=STAGED)
    assert [holding.run.run_id for holding in findings.holdings] == ["7"]
    assert github.asked == []


def test_later_looks_read_one_page_when_only_it_can_have_changed(tmp_path: Path, github: GitHub) -> None:
    running = record(1000, status="in_progress", conclusion=None)
    github.records = [running, *(record(run_id, head_sha=OTHER) for run_id in range(999, 749, -1)), record(700)]
    storage = Storage(tmp_path / STAGED)
    store(tmp_path, 700, GFX1151)
    clock = Clock(lambda: None, lambda: store(tmp_path, 1000, GFX942))
    findings = waited(tmp_path, storage, clock, branch="main", targets="gfx942,gfx1151")
    assert [holding.run.run_id for holding in findings.holdings] == ["1000", "700"]  # an older page still counts
    assert len(github.given) == 252 + 100 + 100
    assert len(storage.listed) == 252 + 2


def test_a_later_look_goes_on_to_the_last_run_that_was_under_way(tmp_path: Path, github: GitHub) -> None:
    old = record(700, status="in_progress", conclusion=None)
    github.records = [*(record(run_id) for run_id in range(999, 849, -1)), old]
    storage = Storage(tmp_path / STAGED)
    clock = Clock(lambda: store(tmp_path, 700, GFX942))
    findings = waited(tmp_path, storage, clock)
    assert [holding.run.run_id for holding in findings.holdings] == ["700"]
    assert len(github.given) == 2 * 151
