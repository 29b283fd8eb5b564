"""What holds of the layout for every name: no key twice, no way out, and one place for producer and consumer."""

from __future__ import annotations

import itertools
import json
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st

from _therock_utils._keys import key_fault
from _therock_utils.s3_buckets import RELEASE_TYPES, Repository
from _therock_utils.storage_location import StorageLocation
from _therock_utils.workflow_outputs import ALIASES, PACKAGE_TYPES, WorkflowOutputRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_T = TypeVar("_T")
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

ROOT = WorkflowOutputRoot("therock-ci-artifacts-external", "ROCm-TheRock/", "12345", "linux")
STAGING = Path("/staging/folder")

LAYOUT_NAMES = (
    "12345-linux",
    "build_observability.html",
    "compiler-runtime",
    "deb",
    "gfx94X-dcgpu",
    "gfx1151",
    "index",
    "index-deb.html",
    "index-index.html",
    "index-index.html.html",
    "index.html",
    "logs",
    "manifests",
    "math-libs",
    "packages",
    "packaging",
    "python",
    "reports",
    "rpm",
    "simple",
    "tarballs",
    "therock-build-prof",
    "therock_manifest.json",
    "upload-build",
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates too
HOSTILE_PIECES = st.sampled_from(
    ["..", ".", "/", "\\", "\n", "\x00", "%2e%2e", "%", "?", "#", "+", " ", "~", ":", "é", "a"]
)
HOSTILE_TEXT = st.one_of(ANY_TEXT, st.lists(HOSTILE_PIECES, max_size=8).map("".join), st.sampled_from(LAYOUT_NAMES))
LEGAL_NAMES = st.one_of(st.sampled_from(LAYOUT_NAMES), ANY_TEXT.filter(lambda text: bool(text) and not key_fault(text)))

# (1) No key twice

Call = tuple[str, tuple[str, ...]]


def calls(names: Sequence[str], files: Iterable[str]) -> Iterator[Call]:
    """Every call of every location method with these names; `files` are names below a log folder."""
    optional = ("", *names)
    for method in ("root", "log_root_index", "manifest_root", "manifests_index", "tarballs", "tarballs_index"):
        yield method, ()
    for method in (
        "native_linux_packages",
        "native_linux_packages_index",
        "native_linux_packages_log_dir",
        "native_linux_packages_log_index",
    ):
        yield from ((method, (package_type,)) for package_type in PACKAGE_TYPES)
    for method in (
        "artifact",
        "log_dir",
        "log_index",
        "build_observability",
        "manifest_dir",
        "manifest_dir_index",
        "manifest",
        "tarball",
    ):
        yield from ((method, (name,)) for name in names if name)
    for method in ("artifact_index", "python_packages", "python_packages_index", "python_simple"):
        yield from ((method, (name,)) for name in optional)
    for method in ("log_stage_dir", "log_stage_index"):
        yield from ((method, arguments) for arguments in itertools.product(names, optional))
    yield from (("package_name_record", arguments) for arguments in itertools.product(PACKAGE_TYPES, names))
    yield from (("framework_manifest", arguments) for arguments in itertools.product(names, names))
    yield from (("run_record", arguments) for arguments in itertools.product(names, names))
    yield from (("log_file", arguments) for arguments in itertools.product(names, files))


def unlisted_collisions(made: Iterable[Call]) -> list[tuple[str, Call, Call]]:
    """Pairs of calls that name one key and are no alias."""
    listed = {(first, second) for first, second, _ in ALIASES}
    by_key: dict[str, set[Call]] = defaultdict(set)
    for method, arguments in made:
        try:
            by_key[getattr(ROOT, method)(*arguments).relative_path].add((method, arguments))
        except ValueError:
            continue  # a reserved name
    return [
        (key, first, second)
        for key, together in by_key.items()
        for first, second in itertools.combinations(sorted(together), 2)
        if (first[0], second[0]) not in listed
    ]


def test_the_calls_above_are_of_every_method() -> None:
    methods = {name for name in vars(WorkflowOutputRoot) if not name.startswith("_")}
    assert {method for method, _ in calls(["a"], ["a"])} == methods - {"from_workflow_run", "for_local", "prefix"}


def test_of_the_layouts_own_names_no_two_calls_share_a_key_but_aliases() -> None:
    files = ["/".join(parts) for count in (1, 2) for parts in itertools.product(LAYOUT_NAMES, repeat=count)]
    assert unlisted_collisions(calls(LAYOUT_NAMES, files)) == []


@patient
@given(st.lists(LEGAL_NAMES, min_size=1, max_size=4, unique=True))
def test_no_two_calls_share_a_key_but_aliases(names: list[str]) -> None:
    paths = ["/".join(parts) for count in (1, 2, 3) for parts in itertools.product(names, repeat=count)]
    joined = [f"index-{name}.html" for name in names] + [f"{a}/{b}" for a, b in itertools.pairwise(names)]
    assert unlisted_collisions(calls([*names, *joined], paths)) == []


# (2) Producer and consumer agree


@dataclass(frozen=True)
class Run:
    """A run as GitHub knows it. `head` is the repository that the commits are from, None once it is deleted."""

    repository: str
    head: str | None
    event: str
    release_type: str

    @property
    def is_pull_request(self) -> bool:
        return self.event == "pull_request"

    def payload(self) -> object:
        """What lies at GITHUB_EVENT_PATH."""
        base = {"full_name": self.repository}
        if self.is_pull_request:
            head = None if self.head is None else {"full_name": self.head, "fork": self.head != self.repository}
            return {"action": "opened", "pull_request": {"head": {"repo": head}, "base": {"repo": base}}}
        if self.event == "workflow_run":
            return {"workflow_run": {"head_repository": {"full_name": "githubuser/TheRock"}}, "repository": base}
        return {"repository": base}

    def environment(self, event_path: Path) -> dict[str, str]:
        """What the runner sets in the run's jobs."""
        return {
            "GITHUB_REPOSITORY": self.repository,
            "GITHUB_EVENT_NAME": self.event,
            "GITHUB_EVENT_PATH": str(event_path),
            "RELEASE_TYPE": self.release_type,
        }

    def record(self) -> dict[str, Any]:
        """What the API says of it later."""
        return {
            "id": 12345,
            "event": self.event,
            "repository": {"full_name": self.repository},
            "head_repository": None if self.head is None else {"full_name": self.head},
            "updated_at": "2026-06-09T00:00:00Z",
        }


REPOSITORIES = st.one_of(
    st.sampled_from(["ROCm/TheRock", "ROCm/rocm-libraries", "ROCm/llvm-project", "githubuser/TheRock", "ROCm/rockrel"]),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,8}", fullmatch=True),
)
EVENTS = st.sampled_from(
    ["push", "pull_request", "schedule", "workflow_dispatch", "workflow_run", "merge_group", "release"]
)
SPELLINGS = st.sampled_from([str, str.lower, str.upper, str.swapcase])


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A run; only a pull request's head can be elsewhere or gone."""
    repository = draw(REPOSITORIES)
    kind = draw(EVENTS)
    head: str | None = repository
    if kind == "pull_request":
        head = draw(st.one_of(st.just(repository), st.none(), REPOSITORIES))
    return Run(repository, head, kind, draw(st.sampled_from(["", *RELEASE_TYPES])))


def root_in(environment: Mapping[str, str], **arguments: Any) -> WorkflowOutputRoot:  # noqa: ANN401 - passed on
    """The root that a job with this environment computes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IS_PR_FROM_FORK", "GITHUB_REPOSITORY", "GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "RELEASE_TYPE"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        return WorkflowOutputRoot.from_workflow_run("12345", "linux", **arguments)


@patient
@given(run=runs(), other=runs(), spell=SPELLINGS, flag=st.sampled_from([None, "", "false", "right"]))
@example(
    run=Run("ROCm/TheRock", None, "pull_request", ""), other=Run("a/b", "a/b", "push", "ci"), spell=str.lower, flag=None
)
def test_the_job_that_uploads_and_the_job_that_fetches_name_one_place(
    tmp_path_factory: pytest.TempPathFactory, run: Run, other: Run, spell: Callable[[str], str], flag: str | None
) -> None:
    event_path = tmp_path_factory.getbasetemp() / "event.json"
    event_path.write_text(json.dumps(run.payload()), encoding="utf-8")
    is_fork = run.is_pull_request and (run.head is None or not Repository.parse(run.repository).is_same(run.head))
    flags = {} if flag is None else {"IS_PR_FROM_FORK": str(is_fork).lower() if flag == "right" else flag}
    event(f"{run.event}, fork: {is_fork}")
    produced = root_in(run.environment(event_path) | flags)

    elsewhere = other.environment(event_path) | {"RELEASE_TYPE": run.release_type, "IS_PR_FROM_FORK": "true"}
    assert root_in(elsewhere, github_repository=spell(run.repository), workflow_run=run.record()) == produced
    assert root_in(elsewhere, workflow_run=run.record()) == produced
    named = {"release_type": run.release_type or "ci", "github_repository": spell(run.repository)}
    assert root_in(other.environment(event_path), workflow_run=run.record(), **named) == produced


# (3) No way out


def check_inside(location: StorageLocation, prefix: str) -> None:
    """The location is the run's folder or below it, in every form."""
    key = location.relative_path
    assert key == prefix or key.startswith(f"{prefix}/")
    assert key_fault(key) == ""
    path = location.local_path(STAGING)
    assert Path(os.path.normpath(path)) == path
    assert path.relative_to(STAGING).parts == tuple(key.split("/"))
    url = urlsplit(location.https_url)
    assert (url.scheme, url.netloc) == ("https", f"{location.bucket}.s3.amazonaws.com")
    assert (url.query, url.fragment) == ("", "")
    assert unquote(url.path, errors="strict") == f"/{key}"
    assert location.https_url.isascii()


@patient
@given(names=st.lists(HOSTILE_TEXT, min_size=1, max_size=2), files=st.lists(HOSTILE_TEXT, max_size=3))
@example(names=["..", "a/../../b"], files=["../../../etc/passwd", "/etc/passwd", "a\\..\\b"])
def test_a_hostile_name_is_refused_or_stays_inside(names: list[str], files: list[str]) -> None:
    for method, arguments in calls(names, files):
        made = made_or_refused(getattr(ROOT, method), *arguments)
        if isinstance(made, StorageLocation):
            check_inside(made, ROOT.prefix)
        else:
            assert str(made).isascii()  # so that it can be printed as it is


def made_or_refused(make: Callable[..., _T], *arguments: str) -> _T | ValueError:
    """What `make` returns, or how it refuses."""
    try:
        return make(*arguments)
    except ValueError as error:
        return error


FIELD_TEXT = st.one_of(HOSTILE_TEXT, st.sampled_from(["local", "12345", "linux", "a-b/", "12345\n", "a/b/", "../"]))


@patient
@given(bucket=FIELD_TEXT, external_repo=FIELD_TEXT, run_id=FIELD_TEXT, platform=FIELD_TEXT)
@example(bucket="b", external_repo="a-b/", run_id="1", platform="linux")
def test_a_hostile_root_is_refused_or_is_one_folder(
    bucket: str, external_repo: str, run_id: str, platform: str
) -> None:
    root = made_or_refused(WorkflowOutputRoot, bucket, external_repo, run_id, platform)
    if isinstance(root, WorkflowOutputRoot):
        check_inside(root.root(), root.prefix)
        assert root.prefix.count("/") == (1 if external_repo else 0)
    else:
        assert str(root).isascii()


# (4) Legal keys are stored as they are


@patient
@given(st.lists(st.one_of(ANY_TEXT, HOSTILE_TEXT), min_size=1, max_size=4).map("/".join))
@example("a" * 1024)
@example("%2F/%25/ /~/e\u0301/\U0001f680")
def test_the_store_keeps_every_legal_key_as_it_is(key: str) -> None:
    import obstore
    from obstore.store import MemoryStore

    assume(key and not key_fault(key))
    store = MemoryStore()
    obstore.put(store, key, b"bytes")
    assert [item["path"] for page in obstore.list(store) for item in page] == [key]
    assert bytes(obstore.get(store, key).bytes()) == b"bytes"


@pytest.mark.parametrize("key", ["/a", "a/", "a//b", ".", "../a", "a\x00", "a\x7f"])
def test_what_the_store_would_alter_or_refuse_is_no_legal_key(key: str) -> None:
    import obstore
    from obstore.store import MemoryStore

    store = MemoryStore()
    try:
        obstore.put(store, key, b"")
    except ValueError:
        stored = None
    else:
        stored = [item["path"] for page in obstore.list(store) for item in page]
    assert stored != [key]
    assert key_fault(key)
