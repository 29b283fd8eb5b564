"""The layout: every vector, every method, every way to a root."""

from __future__ import annotations

import inspect
import json
import platform as host
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils import workflow_outputs
from _therock_utils._errors import GitHubError, IllegalLocationError, InputError
from _therock_utils.storage_location import StorageLocation
from _therock_utils.workflow_outputs import ALIASES, PACKAGE_TYPES, WorkflowOutputRoot, read_event_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = [
    case
    for name in ("locations.json", "own_locations.json")
    for case in json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]
]
BUCKETS = json.loads((VECTORS / "buckets.json").read_text(encoding="utf-8"))
ROOT = WorkflowOutputRoot(bucket="therock-ci-artifacts", external_repo="", run_id="12345", platform="linux")
VARIABLES = (
    "GITHUB_EVENT_NAME",
    "GITHUB_EVENT_PATH",
    "GITHUB_REPOSITORY",
    "GITHUB_RUN_ID",
    "IS_PR_FROM_FORK",
    "RELEASE_TYPE",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def set_environment(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


# Locations


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['method']}-{case['relative_path']}")
def test_each_output_is_where_the_vectors_say(case: dict[str, Any]) -> None:
    location = getattr(WorkflowOutputRoot(**case["root"]), case["method"])(**case["kwargs"])
    assert isinstance(location, StorageLocation)
    assert location.bucket == case["root"]["bucket"]
    assert location.relative_path == case["relative_path"]
    assert location.s3_uri == case["s3_uri"]
    assert location.https_url == case["https_url"]
    assert location.local_path(Path("/staging")) == Path(case["local_path"])


def location_methods() -> list[str]:
    methods = inspect.getmembers(WorkflowOutputRoot, inspect.isfunction)
    return [name for name, function in methods if inspect.signature(function).return_annotation == "StorageLocation"]


def test_every_method_has_a_vector() -> None:
    public = {name for name in location_methods() if not name.startswith("_")}
    assert len(public) == 28
    assert {case["method"] for case in CASES} == public


def test_a_prefix_is_the_runs_folder() -> None:
    assert ROOT.prefix == "12345-linux"
    assert ROOT.root() == StorageLocation("therock-ci-artifacts", "12345-linux")


SEGMENT_CALLS = {
    "artifact": ("filename",),
    "artifact_index": ("artifact_group",),
    "log_dir": ("artifact_group",),
    "log_stage_dir": ("stage_name", "amdgpu_family"),
    "log_stage_index": ("stage_name", "amdgpu_family"),
    "log_file": ("artifact_group",),
    "log_index": ("artifact_group",),
    "build_observability": ("artifact_group",),
    "manifest_dir": ("artifact_group",),
    "manifest": ("artifact_group",),
    "python_packages": ("artifact_group",),
    "python_packages_index": ("artifact_group",),
    "python_simple": ("artifact_group",),
    "framework_manifest": ("artifact_group", "filename"),
    "manifest_dir_index": ("artifact_group",),
    "tarball": ("filename",),
    "run_record": ("mode", "name"),
}


@pytest.mark.parametrize(
    ("method", "argument"),
    [(method, argument) for method, arguments in SEGMENT_CALLS.items() for argument in arguments],
)
@pytest.mark.parametrize("value", ["..", ".", "/", "a/b", "../a", "a/", "a\\b", "a\n", "a\x00", "a\ud800", "a" * 1100])
def test_a_name_is_one_legal_segment(method: str, argument: str, value: str) -> None:
    usual = dict.fromkeys(SEGMENT_CALLS[method], "usual") | ({"filename": "a"} if method == "log_file" else {})
    assert getattr(ROOT, method)(**usual)
    with pytest.raises(IllegalLocationError):
        getattr(ROOT, method)(**usual | {argument: value})


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("artifact", {"filename": ""}),
        ("log_dir", {"artifact_group": ""}),
        ("log_stage_dir", {"stage_name": ""}),
        ("log_stage_index", {"stage_name": "", "amdgpu_family": "gfx1151"}),
        ("log_file", {"artifact_group": "", "filename": "a"}),
        ("log_file", {"artifact_group": "g", "filename": ""}),
        ("manifest", {"artifact_group": ""}),
        ("tarball", {"filename": ""}),
        ("run_record", {"mode": "", "name": "a"}),
        ("run_record", {"mode": "a", "name": ""}),
    ],
)
def test_a_name_that_is_needed_is_not_empty(method: str, arguments: dict[str, str]) -> None:
    with pytest.raises(IllegalLocationError):
        getattr(ROOT, method)(**arguments)


@pytest.mark.parametrize("filename", ["/a", "a/", "a//b", "../a", "a/../b", "a/..", "a\\b", "a/\x00", "a" * 1100])
def test_a_log_file_stays_below_its_folder(filename: str) -> None:
    with pytest.raises(IllegalLocationError):
        ROOT.log_file("gfx94X-dcgpu", filename)


@pytest.mark.parametrize("name", ["logs", "manifests", "packages", "python", "tarballs", "reports"])
def test_an_artifact_is_not_named_like_a_folder_of_the_layout(name: str) -> None:
    with pytest.raises(IllegalLocationError, match="folder of the layout"):
        ROOT.artifact(name)


@pytest.mark.parametrize("name", ["index.html", "therock_manifest.json"])
@pytest.mark.parametrize(
    "method",
    [
        "artifact_index",
        "log_dir",
        "log_stage_dir",
        "log_index",
        "manifest_dir",
        "manifest",
        "python_packages",
        "python_simple",
        "tarball",
    ],
)
def test_a_folder_is_not_named_like_a_file_beside_it(method: str, name: str) -> None:
    with pytest.raises(IllegalLocationError, match="file of the layout"):
        getattr(ROOT, method)(name)


@pytest.mark.parametrize("name", ["index.html", "therock_manifest.json"])
def test_a_framework_manifest_is_not_named_like_a_file_of_the_layout(name: str) -> None:
    with pytest.raises(IllegalLocationError, match="file of the layout"):
        ROOT.framework_manifest("gfx1151", name)


@pytest.mark.parametrize("method", ["python_packages", "python_packages_index", "python_simple"])
def test_a_group_of_packages_is_not_named_like_their_simple_repository(method: str) -> None:
    with pytest.raises(IllegalLocationError, match="simple repository"):
        getattr(ROOT, method)("simple")


@pytest.mark.parametrize("method", ["native_linux_packages", "native_linux_packages_log_dir"])
def test_native_packages_are_deb_or_rpm_of_a_linux_run(method: str) -> None:
    for package_type in ("", "DEB", "apk", "deb\n", "../deb"):
        with pytest.raises(InputError, match="package type") as caught:
            getattr(ROOT, method)(package_type)
        assert all(valid in caught.value.remedy for valid in PACKAGE_TYPES)
    windows = WorkflowOutputRoot("therock-ci-artifacts", "", "12345", "windows")
    with pytest.raises(InputError, match="linux only, not for 'windows'"):
        getattr(windows, method)("deb")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bucket", ""),
        ("bucket", "therock-ci-artifacts\n"),
        ("bucket", "a/b"),
        ("external_repo", "ROCm-TheRock"),
        ("external_repo", "../"),
        ("external_repo", "a/b/"),
        ("run_id", ""),
        ("run_id", "1/../2"),
        ("run_id", "12345\n"),
        ("run_id", "١٢٣٤٥"),
        ("run_id", "1\x00"),
        ("run_id", "\ud800"),
        ("run_id", "-1"),
        ("platform", ""),
        ("platform", "Linux"),
        ("platform", "linux\n"),
        ("platform", "linux-2"),
    ],
)
def test_a_root_that_would_lie_elsewhere_cannot_be_made(field: str, value: str) -> None:
    fields = {"bucket": "local", "external_repo": "", "run_id": "12345", "platform": "linux"} | {field: value}
    with pytest.raises(IllegalLocationError, match=f"^{field} "):
        WorkflowOutputRoot(**fields)


ALIAS_EXAMPLES = [
    ("log_file", ("g", "index.html"), "log_index", ("g",)),
    ("build_observability", ("g",), "log_file", ("g", "build_observability.html")),
    ("artifact", ("index.html",), "artifact_index", ()),
    ("artifact", ("index-g.html",), "artifact_index", ("g",)),
    ("log_dir", ("g",), "log_stage_dir", ("g",)),
    ("log_index", ("g",), "log_stage_index", ("g",)),
    ("log_file", ("g", "gfx1151"), "log_stage_dir", ("g", "gfx1151")),
    ("log_file", ("g", "index.html"), "log_stage_index", ("g",)),
    ("log_file", ("g", "gfx1151/index.html"), "log_stage_index", ("g", "gfx1151")),
    ("build_observability", ("g",), "log_stage_dir", ("g", "build_observability.html")),
    ("log_file", ("packaging", "deb"), "native_linux_packages_log_dir", ("deb",)),
    ("log_stage_dir", ("packaging", "rpm"), "native_linux_packages_log_dir", ("rpm",)),
    ("log_file", ("packaging", "deb/index.html"), "native_linux_packages_log_index", ("deb",)),
    ("log_stage_index", ("packaging", "rpm"), "native_linux_packages_log_index", ("rpm",)),
]


@pytest.mark.parametrize(("first", "first_arguments", "second", "second_arguments"), ALIAS_EXAMPLES)
def test_an_alias_names_one_key_twice(
    first: str, first_arguments: tuple[str, ...], second: str, second_arguments: tuple[str, ...]
) -> None:
    assert getattr(ROOT, first)(*first_arguments) == getattr(ROOT, second)(*second_arguments)


def test_every_alias_that_is_listed_exists() -> None:
    pairs = [(first, second) for first, second, _ in ALIASES]
    assert pairs == [tuple(sorted(pair)) for pair in pairs]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {(first, second) for first, _, second, _ in ALIAS_EXAMPLES}


# Factories


@pytest.mark.parametrize("vector", BUCKETS["environment"], ids=lambda vector: vector["note"])
def test_a_jobs_environment_leads_to_its_bucket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vector: dict[str, Any]
) -> None:
    set_environment(monkeypatch, vector["env"])
    if vector["event"] is not None:
        event = tmp_path / "event.json"
        event.write_text(json.dumps(vector["event"]), encoding="utf-8")
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    root = WorkflowOutputRoot.from_workflow_run(run_id="12345", platform="linux")
    assert root == WorkflowOutputRoot(vector["bucket"], vector["external_repo"], "12345", "linux")


@pytest.mark.parametrize("vector", BUCKETS["lookup"], ids=lambda vector: vector["note"])
def test_a_record_leads_to_the_runs_bucket(monkeypatch: pytest.MonkeyPatch, vector: dict[str, Any]) -> None:
    set_environment(monkeypatch, vector["env"])
    root = WorkflowOutputRoot.from_workflow_run(
        run_id="12345",
        platform="linux",
        github_repository=vector["github_repository"],
        workflow_run=vector["workflow_run"],
        release_type=vector.get("release_type"),
    )
    assert root == WorkflowOutputRoot(vector["bucket"], vector["external_repo"], "12345", "linux")


def test_a_record_is_of_its_own_repository_whatever_the_job_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "githubuser/TheRock")
    record = {"id": 1, "repository": {"full_name": "ROCm/TheRock"}, "head_repository": {"full_name": "ROCm/TheRock"}}
    root = WorkflowOutputRoot.from_workflow_run("1", "linux", workflow_run=record)
    assert (root.bucket, root.external_repo) == ("therock-ci-artifacts", "")


@pytest.mark.parametrize("release_type", [None, ""])
@pytest.mark.parametrize(
    ("variable", "bucket"), [("nightly", "therock-nightly-artifacts"), ("", "therock-ci-artifacts")]
)
def test_an_empty_release_type_is_unset(
    monkeypatch: pytest.MonkeyPatch, release_type: str | None, variable: str, bucket: str
) -> None:
    monkeypatch.setenv("RELEASE_TYPE", variable)
    assert WorkflowOutputRoot.from_workflow_run("1", "linux", release_type=release_type).bucket == bucket


def test_a_given_release_type_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELEASE_TYPE", "nightly")
    assert WorkflowOutputRoot.from_workflow_run("1", "linux", release_type="ci").bucket == "therock-ci-artifacts"


@pytest.mark.parametrize("given", [True, False])
def test_an_unknown_release_type_is_refused(monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    if not given:
        monkeypatch.setenv("RELEASE_TYPE", "stable")
    with pytest.raises(InputError, match="prerelease"):
        WorkflowOutputRoot.from_workflow_run("1", "linux", release_type="stable" if given else None)


@pytest.mark.parametrize(("run_id", "platform"), [("1/../2", "linux"), ("12345\n", "linux"), ("12345", "linux\n")])
def test_an_illegal_run_is_refused_before_anything_is_read_or_asked(
    monkeypatch: pytest.MonkeyPatch, run_id: str, platform: str
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "no repository")
    with pytest.raises(IllegalLocationError):
        WorkflowOutputRoot.from_workflow_run(run_id, platform, lookup_workflow_run=True)


@pytest.mark.parametrize("repository", ["ROCm", "a/b/c", "ROCm/TheRock\n"])
def test_what_is_no_repository_is_refused(repository: str) -> None:
    with pytest.raises(InputError, match="owner/name"):
        WorkflowOutputRoot.from_workflow_run("1", "linux", github_repository=repository)


def test_a_record_that_cannot_be_read_is_a_fault_of_the_answer() -> None:
    with pytest.raises(GitHubError):
        WorkflowOutputRoot.from_workflow_run("1", "linux", workflow_run={"updated_at": "soon"})


PULL_REQUEST = {"GITHUB_REPOSITORY": "ROCm/TheRock", "GITHUB_EVENT_NAME": "pull_request"}


@pytest.mark.parametrize("content", [None, b"", b'{"a": "\xf6"}', b"[" * 100_000, b'{"pull_request": 7}'])
def test_a_payload_that_is_needed_and_broken_is_an_error_with_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    event = tmp_path / "event.json"
    if content is not None:
        event.write_bytes(content)
    set_environment(monkeypatch, PULL_REQUEST | {"GITHUB_EVENT_PATH": str(event)})
    with pytest.raises(InputError) as caught:
        WorkflowOutputRoot.from_workflow_run("12345", "linux")
    assert str(event) in str(caught.value)


@pytest.mark.parametrize(
    "variables",
    [
        {"RELEASE_TYPE": "nightly"},
        {"GITHUB_REPOSITORY": "ROCm/rocm-libraries"},
        {"IS_PR_FROM_FORK": "true"},
        {"GITHUB_EVENT_NAME": "push"},
    ],
)
def test_a_payload_that_is_not_needed_is_not_read(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    set_environment(monkeypatch, PULL_REQUEST | {"GITHUB_EVENT_PATH": "/nowhere/event.json"} | variables)
    assert WorkflowOutputRoot.from_workflow_run("12345", "linux").bucket in {
        "therock-nightly-artifacts",
        "therock-ci-artifacts-external",
        "therock-ci-artifacts",
    }


def test_a_payload_that_is_not_needed_for_another_repository_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"GITHUB_REPOSITORY": "githubuser/TheRock", "GITHUB_EVENT_PATH": "/nowhere/event.json"}
    set_environment(monkeypatch, PULL_REQUEST | own)
    root = WorkflowOutputRoot.from_workflow_run("1", "linux", github_repository="ROCm/TheRock")
    assert root.bucket == "therock-ci-artifacts"


def test_a_payload_of_any_size_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    monkeypatch.setattr(workflow_outputs, "MAX_EVENT_BYTES", 10)
    event.write_bytes(b"0123456789")
    assert read_event_payload(str(event)) == b"0123456789"
    event.write_bytes(b"0123456789+")
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_event_payload(str(event))


@pytest.mark.parametrize("white_space", ["\n", " ", "\t"])
def test_white_space_around_a_variable_does_not_move_the_outputs(
    monkeypatch: pytest.MonkeyPatch, white_space: str
) -> None:
    job = {"GITHUB_REPOSITORY": "ROCm/TheRock", "IS_PR_FROM_FORK": "true", "RELEASE_TYPE": "ci"}
    set_environment(monkeypatch, {name: f"{value}{white_space}" for name, value in job.items()})
    roots = [
        WorkflowOutputRoot.from_workflow_run("1", "linux", github_repository=repository)
        for repository in (None, "ROCm/TheRock")
    ]
    assert {root.bucket for root in roots} == {"therock-ci-artifacts-external"}
    assert {root.external_repo for root in roots} == {"ROCm-TheRock/"}


def test_this_jobs_repository_is_spelled_as_its_environment_spells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "ROCm/rocm-libraries")
    root = WorkflowOutputRoot.from_workflow_run("1", "linux", github_repository="rocm/ROCM-libraries")
    assert root.external_repo == "ROCm-rocm-libraries/"
    other = WorkflowOutputRoot.from_workflow_run("1", "linux", github_repository="rocm/Hip")
    assert other.external_repo == "rocm-Hip/"


def test_a_local_root_needs_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, PULL_REQUEST | {"RELEASE_TYPE": "stable", "IS_PR_FROM_FORK": "maybe"})
    assert WorkflowOutputRoot.for_local(run_id="local", platform="linux") == WorkflowOutputRoot(
        "local", "", "local", "linux"
    )
    assert WorkflowOutputRoot.for_local().platform == host.system().lower()
    assert WorkflowOutputRoot.for_local("7", "windows", "mine").root().s3_uri == "s3://mine/7-windows"
    with pytest.raises(IllegalLocationError):
        WorkflowOutputRoot.for_local(platform="")
