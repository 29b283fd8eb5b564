"""Mode verify: same, missing, differs, extra; and what is said where something cannot be looked at."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
)
from _therock_utils._sidecar import MAX_SIDECAR_BYTES
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, make_context
from fakes.trees import digest, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode
from therock_outputs.modes._comparison import (
    MAX_ROWS,
    Expected,
    Finding,
    Stored,
    by_name,
    compare,
    digest_in,
    in_words,
    is_sidecar,
    is_too_long,
    rows,
    tally,
    verdict,
    without_sidecar,
)
from therock_outputs.run_records import RECORD_FORMAT, RecordedObject, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from _therock_utils._transfer_types import ListedObject, ObjectFacts, StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
A, B = "a" * 64, "b" * 64
ARCHIVE = "blas_lib_gfx942.tar.zst"
SIDECAR = f"{ARCHIVE}.sha256sum"

# Decisions


def claims(*sizes_and_digests: tuple[int, str], name: str = "x") -> dict[str, tuple[RecordedObject, ...]]:
    return {name: tuple(RecordedObject(f"{P}/{name}", size, sha256) for size, sha256 in sizes_and_digests)}


def one(expected: Expected, stored: dict[str, Stored], name: str = "x") -> Finding:
    found = {finding.key: finding for finding in compare(expected, stored, records=())}
    return found[name]


@pytest.mark.parametrize(
    ("recorded", "stored", "state", "why", "compared"),
    [
        ([(1, A)], None, "missing", "a record names it", False),
        ([(1, A)], Stored(1, A), "same", "", True),
        ([(1, A)], Stored(1), "same", "only its size was compared", False),
        ([(1, "")], Stored(1, A), "same", "only its size was compared", False),
        ([(1, ""), (1, A)], Stored(1, B), "same", "only its size was compared", False),
        ([(1, A), (2, B)], Stored(2, B), "same", "", True),
        ([(2, B), (1, A)], Stored(1), "same", "only its size was compared", False),
        ([(1, A), (1, B)], Stored(1, B), "same", "", True),
        ([(1000, A), (1, A)], Stored(2), "differs", "it has 2 bytes, and 1 or 1,000 were recorded", False),
        ([(1, A)], Stored(1, B), "differs", f"its SHA-256 is {B}, and {A} was recorded", False),
        ([(1, A), (2, B)], Stored(2, A), "differs", f"its SHA-256 is {A}, and {B} was recorded", False),
    ],
)
def test_an_object_is_the_same_if_any_record_of_it_is_true(
    recorded: list[tuple[int, str]], stored: Stored | None, state: str, why: str, compared: bool
) -> None:
    finding = one(Expected(claims(*recorded)), {} if stored is None else {"x": stored})
    assert (finding.state, finding.why, finding.is_digest_compared) == (state, why, compared)


def test_no_more_than_a_few_of_many_digests_are_told() -> None:
    recorded = [(1, f"{number:064x}") for number in range(5)]
    why = one(Expected(claims(*recorded)), {"x": Stored(1, A)}).why
    assert why.endswith(f"{0:064x} or {1:064x} or {2:064x} or one of 2 more was recorded")


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("logs/a.log", "extra"),
        ("index.html", None),
        ("logs/x/index.html", None),
        ("logs/my-index.html", "extra"),
        ("reports/m/r.json", None),
        ("reports/m/other.json", "extra"),
        ("unseen", None),
    ],
)
def test_what_nobody_names_is_extra_but_for_records_and_pages_of_the_server(name: str, state: str | None) -> None:
    found = compare(Expected(), {name: Stored(1)}, records=["reports/m/r.json"], unknown=["unseen"])
    assert [finding.state for finding in found] == ([] if state is None else [state])


def test_a_name_that_is_reserved_for_a_package_is_nothing_extra() -> None:
    assert compare(Expected(), {"reports/package-names/deb/a.deb": Stored(70)}, records=()) == ()


def test_a_page_that_a_record_names_is_compared_as_any_object() -> None:
    expected = Expected(claims((1, A), name="index.html"))
    assert one(expected, {"index.html": Stored(2)}, "index.html").state == "differs"
    assert one(expected, {}, "index.html").state == "missing"


@pytest.mark.parametrize("name", ["logs/g/index.html", "logs/g/index.json"])
def test_the_pages_of_a_folder_that_holds_nothing_any_more_are_not_missed(name: str) -> None:
    expected = Expected(claims((1, A), name=name))
    assert compare(expected, {}, records=()) == ()
    assert one(expected, {"logs/g": Stored(2)}, "logs/g").state == "extra"


def test_a_page_is_missed_where_its_folder_holds_something_and_a_list_which_may_be_too_large_is_not() -> None:
    there = {"logs/g/sub/a.log": Stored(2)}
    page, list_ = "logs/g/index.html", "logs/g/index.json"
    assert one(Expected(claims((1, A), name=page)), there, page).state == "missing"
    assert [finding.key for finding in compare(Expected(claims((1, A), name=list_)), there, records=())] == [*there]
    assert one(Expected(claims((1, A), name=list_)), {list_: Stored(2, B)}, list_).state == "differs"


@pytest.mark.parametrize("name", ["index.html", "index.json", "logs/index.html", "logs/index.json"])
def test_a_page_that_no_record_names_is_nothing_extra(name: str) -> None:
    assert compare(Expected(), {name: Stored(2)}, records=()) == ()


@pytest.mark.parametrize(
    ("said", "stored", "state", "compared"),
    [
        (A, Stored(5, A), "same", True),
        (A, Stored(5), "same", False),
        (None, Stored(5, A), "same", False),
        ("", Stored(5, A), "same", False),
        (A, Stored(5, B), "differs", False),
        (A, None, "missing", False),
        (None, None, "missing", False),
    ],
)
def test_an_archive_that_no_record_names_is_measured_by_its_sidecar(
    said: str | None, stored: Stored | None, state: str, compared: bool
) -> None:
    there = {SIDECAR: Stored(99)} | ({} if stored is None else {ARCHIVE: stored})
    finding = one(Expected(digests={SIDECAR: said}), there, ARCHIVE)
    assert (finding.state, finding.is_digest_compared) == (state, compared)
    assert one(Expected(digests={SIDECAR: said}), there, SIDECAR).state == ("differs" if said == "" else "same")


@pytest.mark.parametrize(
    ("recorded", "said", "archive", "state"),
    [
        ([(5, A)], A, Stored(5, A), "same"),
        ([(5, A)], A, Stored(5), "same"),
        ([(5, A)], B, Stored(5), "differs"),
        ([(5, A)], B, Stored(5, A), "differs"),
        ([(5, A)], A, Stored(5, B), "same"),  # the archive is what differs
        ([(5, A)], B, Stored(5, B), "differs"),
        ([(5, A), (5, B)], A, Stored(5, B), "differs"),  # two jobs raced, and each left half
        ([(5, A), (6, B)], A, Stored(6), "differs"),
        ([(5, A), (6, B)], B, Stored(6), "same"),
        ([(5, A), (6, B)], A, Stored(7), "same"),
        ([(5, "")], A, Stored(5, A), "same"),
        ([(5, "")], A, Stored(5, B), "same"),  # the archive is what differs
        ([(5, ""), (5, A)], B, Stored(5, B), "same"),
        ([(5, ""), (5, A)], A, Stored(5, B), "same"),  # the archive is what differs
        ([(5, "")], A, Stored(5), "same"),
        ([(5, A)], A, None, "same"),
        ([(5, A)], B, None, "differs"),
        ([(5, A)], "", Stored(5, A), "differs"),
        ([(5, A)], None, Stored(5, A), "same"),
    ],
)
def test_a_sidecar_that_disagrees_with_its_archive_differs(
    recorded: list[tuple[int, str]], said: str | None, archive: Stored | None, state: str
) -> None:
    there = {SIDECAR: Stored(99, A)} | ({} if archive is None else {ARCHIVE: archive})
    expected = Expected(claims(*recorded, name=ARCHIVE) | claims((99, A), name=SIDECAR), {SIDECAR: said})
    assert one(expected, there, SIDECAR).state == state


@pytest.mark.parametrize(
    ("recorded", "said", "stored", "state", "compared"),
    [
        ([(5, "")], A, Stored(5, B), "differs", False),
        ([(5, "")], A, Stored(5, A), "same", True),
        ([(5, "")], A, Stored(5), "same", False),
        ([(5, "")], "", Stored(5, A), "same", False),
        ([(5, "")], None, Stored(5, A), "same", False),
        ([(5, "")], A, Stored(6, A), "differs", False),
        ([(5, ""), (5, A)], B, Stored(5, B), "same", True),
        ([(5, ""), (5, A)], A, Stored(5, B), "differs", False),
        ([(5, A)], B, Stored(5, A), "same", True),  # the sidecar is what differs
    ],
)
def test_where_records_know_no_digest_an_archive_is_measured_by_its_sidecar(
    recorded: list[tuple[int, str]], said: str | None, stored: Stored, state: str, compared: bool
) -> None:
    expected = Expected(claims(*recorded, name=ARCHIVE) | claims((99, A), name=SIDECAR), {SIDECAR: said})
    finding = one(expected, {ARCHIVE: stored, SIDECAR: Stored(99, A)}, ARCHIVE)
    assert (finding.state, finding.is_digest_compared) == (state, compared)
    if finding.state == "differs" and stored.size_bytes == 5:
        assert finding.why == f"its SHA-256 is {stored.sha256}, and its sidecar says {said}"


def test_a_sidecar_is_compared_with_its_own_record_first() -> None:
    expected = Expected(claims((5, A), name=ARCHIVE) | claims((99, A), name=SIDECAR), {SIDECAR: A})
    finding = one(expected, {ARCHIVE: Stored(5, A), SIDECAR: Stored(99, B)}, SIDECAR)
    assert (finding.state, finding.why) == ("differs", f"its SHA-256 is {B}, and {A} was recorded")


@pytest.mark.parametrize(
    ("recorded", "said", "size_bytes", "wanted"),
    [
        ([(5, A)], None, 5, True),
        ([(5, A)], A, 6, False),
        ([(5, "")], None, 5, False),
        ([(5, "")], A, 5, True),
        ([(6, A), (5, "")], None, 5, False),
        (None, A, 5, True),
        (None, "", 5, False),
        (None, None, 5, False),
    ],
)
def test_a_digest_is_wanted_only_where_it_decides(
    recorded: list[tuple[int, str]] | None, said: str | None, size_bytes: int, wanted: bool
) -> None:
    records = {} if recorded is None else claims(*recorded, name=ARCHIVE)
    assert Expected(records, {SIDECAR: said}).wants_digest(ARCHIVE, size_bytes) == wanted


def test_what_several_records_say_of_an_object_is_kept_once_each() -> None:
    def record(name: str, *objects: RecordedObject) -> RunRecord:
        return RunRecord(name, "m", "s", complete=True, objects=objects, per_stage={})

    first, second = RecordedObject(f"{P}/x", 1, A), RecordedObject(f"{P}/x", 2, B)
    other = RecordedObject(f"{P}/y", 1, A)
    found = by_name([record("1", first), record("2", first, second), record("3", other)], prefix=P)
    assert found == {"x": (first, second), "y": (other,)}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [(SIDECAR, True), ("notes.sha256sum", True), (f"logs/{SIDECAR}", False), (".sha256sum", False), (ARCHIVE, False)],
)
def test_sidecars_lie_directly_in_the_run(name: str, is_one: bool) -> None:
    assert is_sidecar(name) == is_one


def test_a_sidecar_holds_the_digest_of_its_own_file_only() -> None:
    assert digest_in(f"{A}  {ARCHIVE}\n".encode(), SIDECAR) == A
    assert digest_in(f"{A}  other.tar.zst\n".encode(), SIDECAR) == ""
    assert (is_too_long(MAX_SIDECAR_BYTES), is_too_long(MAX_SIDECAR_BYTES + 1)) == (False, True)


def test_archives_without_a_sidecar_are_those_directly_in_the_run() -> None:
    names = [ARCHIVE, SIDECAR, "b_run_generic.tar.xz", "a.tar.zst", "logs/ninja.tar.xz", "x.log"]
    assert without_sidecar(names) == ("a.tar.zst", "b_run_generic.tar.xz")


def finding(state: Any, key: str = "k") -> Finding:  # noqa: ANN401 - a State
    return Finding(state, key, "because")


NAMES = st.sampled_from(["a", "b", ARCHIVE, SIDECAR, "index.html", "logs/index.html"])
SIZES, DIGESTS = st.integers(0, 2), st.sampled_from(["", A, B])
CLAIMS = st.lists(st.tuples(SIZES, DIGESTS), min_size=1, max_size=3)


@given(
    st.dictionaries(NAMES, CLAIMS, max_size=4),
    st.dictionaries(NAMES, st.builds(Stored, SIZES, DIGESTS), max_size=4),
    st.sampled_from([None, "", A, B]),
)
def test_every_object_gets_exactly_one_finding_and_trouble_comes_first(
    recorded: dict[str, list[tuple[int, str]]], stored: dict[str, Stored], said: str | None
) -> None:
    records = {key: value for name, given in recorded.items() for key, value in claims(*given, name=name).items()}
    digests = {name: said for name in stored if is_sidecar(name)}
    found = compare(Expected(records, digests), stored, records=())
    keys = [finding.key for finding in found]
    assert len(keys) == len(set(keys))
    files_of_sidecars = {name.removesuffix(".sha256sum") for name in digests}
    pages = {name for name in stored if name.endswith("index.html") and name not in records}
    removed = {"logs/index.html"} - set(stored)  # there is nothing else in that folder
    assert set(keys) == {*records, *stored, *files_of_sidecars} - pages - removed
    order = [["differs", "missing", "extra", "same"].index(finding.state) for finding in found]
    assert order == sorted(order)
    for finding in found:
        assert (finding.state == "missing") == (finding.key not in stored)
        assert (finding.state == "extra") <= (finding.key not in records)


def test_rows_have_the_signs_and_say_how_many_are_left_out() -> None:
    states = ["differs", "missing", "extra", "same"]
    shown, more = rows([finding(state, state) for state in states])
    assert shown == (
        ("*", "differs", "because"),
        ("-", "missing", "because"),
        ("+", "extra", "because"),
        ("=", "same", "because"),
    )
    assert more == 0
    shown, more = rows([finding("same")] * (MAX_ROWS + 7))
    assert (len(shown), more) == (MAX_ROWS, 7)


def test_counts_in_words() -> None:
    assert in_words(tally([finding("same"), finding("same"), finding("extra")])) == "2 same, 1 extra"
    assert in_words(Counter()) == "nothing"


@pytest.mark.parametrize(
    ("states", "unseen", "kind", "what"),
    [
        (["same", "extra"], None, None, ""),
        (["missing"], None, NotFoundError, "1 object of the run is missing"),
        (["missing", "missing"], None, NotFoundError, "2 objects of the run are missing"),
        (["differs"], None, IntegrityError, "1 object of the run is not what records and digests say"),
        (["differs", "differs", "missing"], None, IntegrityError, "2 objects of the run are not what "),
        (["same"], NotPermittedError("no"), NotPermittedError, "no"),
        (["missing"], NotPermittedError("no"), NotPermittedError, "no"),
        (["differs"], NotPermittedError("no"), IntegrityError, "1 object of the run is not what "),
    ],
)
def test_the_verdict_is_the_worst_there_is(
    states: list[str], unseen: OutputsError | None, kind: type[OutputsError] | None, what: str
) -> None:
    error = verdict([finding(state) for state in states], unseen)
    assert type(error) is (kind or type(None))
    assert str(error or "").startswith(what)


def test_the_verdict_on_what_differs_tells_the_rest_too() -> None:
    error = verdict([finding("differs", "a\x1b"), finding("missing"), finding("missing")], NotPermittedError("denied"))
    assert error is not None
    assert error.why == r"the first: a\x1b: because; 2 objects missing, too; not all could be looked at: denied"


# The mode, on a staging folder

BUILD = {
    "logs/a.log": "a\n",
    "logs/b.log": "b\n",
    "artifacts/blas_lib_gfx942.tar.zst": "archive",
    "base/aux-overlay/build/therock_manifest.json": "{}\n",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_tree(tmp_path / "build", BUILD)
    assert load_mode(Mode.UPLOAD_BUILD).run(make_context(tmp_path, Mode.UPLOAD_BUILD, artifact_group="g")).complete
    return tmp_path


def verify(workspace: Path, **options: Any) -> Report:  # noqa: ANN401 - make_context's
    return load_mode(Mode.VERIFY).run(make_context(workspace, Mode.VERIFY, **options))


def states(report: Report) -> dict[str, str]:
    (table,) = report.tables
    return {key: sign for sign, key, _ in table.rows}


def lay(workspace: Path, name: str, data: str | None) -> None:
    path = workspace / STAGED / P / name
    if data is None:
        path.unlink()
    else:
        write_tree(workspace / STAGED / P, {name: data})


@pytest.mark.parametrize("check", ["size", "stored", "read"])
def test_what_was_just_stored_is_the_same(workspace: Path, check: str) -> None:
    report = verify(workspace, check=check)
    assert report.error is None
    assert set(states(report).values()) == {"="}
    assert report.outputs == {
        "verified": "true",
        "same_count": "7",
        "missing_count": "0",
        "differs_count": "0",
        "extra_count": "0",
    }
    assert (report.verb, report.warnings, report.staging_dir, report.record) == ("checked", (), None, None)
    assert report.parts[0].note == "7 same"
    assert (len(report.notices) == 1) == (check == "size")


@pytest.mark.parametrize(
    ("name", "data", "sign", "exit_code"),
    [
        ("logs/g/a.log", None, "-", 3),
        ("logs/g/a.log", "longer\n", "*", 6),
        ("logs/g/a.log", "x\n", "*", 6),
        ("logs/g/new.log", "x", "+", 0),
        ("logs/g/index.html", "x", "*", 6),
        ("logs/other/index.html", "x", "", 0),
        (ARCHIVE, "ARCHIVE", "*", 6),
        (ARCHIVE, None, "-", 3),
        (SIDECAR, f"{A}  {ARCHIVE}\n", "*", 6),
        (SIDECAR, "x" * (MAX_SIDECAR_BYTES + 1), "*", 6),
        (SIDECAR, None, "-", 3),
        ("more_lib_generic.tar.xz.sha256sum", f"{A}\n", "=", 3),  # and what it is the digest of is missing
        ("reports/upload-build/new.json", "{", "", 6),
        ("reports/new.txt", "{", "+", 0),
    ],
)
def test_what_changed_since_is_found(workspace: Path, name: str, data: str | None, sign: str, exit_code: int) -> None:
    lay(workspace, name, data)
    report = verify(workspace)
    assert report.exit_code == exit_code
    assert states(report).get(name, "") == sign
    assert report.outputs["verified"] == str(exit_code == 0).lower()
    others = {key: found for key, found in states(report).items() if key != name}
    assert set(others.values()) <= {"=", "-"}
    assert ("-" in others.values()) == (name.startswith("more_"))


def test_other_bytes_of_the_same_size_are_not_seen_by_size_alone(workspace: Path) -> None:
    lay(workspace, "logs/g/a.log", "x\n")
    report = verify(workspace, check="size")
    assert report.error is None
    assert "check: read reads every byte" in report.notices[0]


def test_trouble_comes_first_and_the_table_is_bounded(workspace: Path) -> None:
    write_tree(workspace / STAGED / P, {f"logs/g/extra{number:04}.log": "x" for number in range(MAX_ROWS)})
    lay(workspace, "logs/g/a.log", None)
    (table,) = verify(workspace).tables
    assert table.rows[0][:2] == ("-", "logs/g/a.log")
    assert {row[0] for row in table.rows[1:]} == {"+"}
    assert (len(table.rows), table.more) == (MAX_ROWS, 7)


def test_a_page_that_two_jobs_wrote_and_a_file_that_was_stored_again_are_the_same(workspace: Path) -> None:
    write_tree(workspace / "build", {"logs/b.log": "changed\n", "logs/c.log": "c\n"})
    context = make_context(workspace, Mode.UPLOAD_BUILD, artifact_group="g")
    assert load_mode(Mode.UPLOAD_BUILD).run(context).complete
    report = verify(workspace)
    assert report.error is None
    assert report.outputs["same_count"] == "8"


def archive_by_others(workspace: Path, said: str = "") -> None:
    """A run as other programs leave it: an archive and its digest, no record."""
    write_tree(workspace / STAGED / P, {ARCHIVE: "data", SIDECAR: f"{said or digest('data')}\n", "logs/x.log": "x"})


def test_without_records_sidecars_are_what_counts(tmp_path: Path) -> None:
    archive_by_others(tmp_path)
    report = verify(tmp_path)
    assert report.error is None
    assert states(report) == {ARCHIVE: "=", SIDECAR: "=", "logs/x.log": "+"}
    archive_by_others(tmp_path, A)
    report = verify(tmp_path)
    assert report.exit_code == 6
    assert states(report)[ARCHIVE] == "*"
    (row,) = [row for row in report.tables[0].rows if row[0] == "*"]
    assert row[2] == f"its SHA-256 is {digest('data')}, and its sidecar says {A}"


def test_an_empty_run_is_an_error_that_says_so(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {"200-linux/logs/a.log": "another run's"})
    with pytest.raises(NotFoundError, match="run 100 has no outputs"):
        verify(tmp_path)


def test_neither_records_nor_digests_are_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P, {"logs/x.log": "x"})
    with pytest.raises(NotFoundError, match="nothing to verify") as caught:
        verify(tmp_path)
    assert "it has 1 object, and neither" in caught.value.why


def test_a_record_that_is_all_there_is_and_cannot_be_used_is_a_failure(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P, {"logs/x.log": "x", "reports/upload-stage/r.json": "[]"})
    report = verify(tmp_path)
    assert report.exit_code == 6
    assert [item.path for item in report.result.failed] == ["reports/upload-stage/r.json"]
    assert states(report) == {"logs/x.log": "+"}


def test_incomplete_records_and_archives_without_digests_are_warned_of(workspace: Path) -> None:
    (record,) = (workspace / STAGED / P / "reports/upload-build").iterdir()
    document = json.loads(record.read_text())
    record.write_text(json.dumps(document | {"complete": False}))
    lay(workspace, "other_lib_generic.tar.xz", "x")
    warnings = verify(workspace).warnings
    assert warnings == (
        f"these records say that not all was stored: reports/upload-build/{record.name}",
        "these archives have no digest beside them: other_lib_generic.tar.xz",
    )


class Troubled(LocalStorageBackend):
    """Says of certain objects what a service may say: an error, that it is gone, that it keeps no digest."""

    def __init__(
        self, staging_dir: Path, answers: Mapping[str, OutputsError | None], *, has_digests: bool = True
    ) -> None:
        super().__init__(staging_dir)
        self._answers, self._has_digests = answers, has_digests
        self.described: list[str] = []

    def read_all_small(
        self, locations: Sequence[StorageLocation], *, cancel: CancelToken | None = None
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        answers = super().read_all_small(locations, cancel=cancel)
        return tuple(
            self._answers.get(location.name, answer) for location, answer in zip(locations, answers, strict=True)
        )

    def describe(
        self, locations: Sequence[StorageLocation], *, reads: bool = False, cancel: CancelToken | None = None
    ) -> tuple[ObjectFacts | OutputsError | None, ...]:
        self.described += [location.name for location in locations]
        found: list[ObjectFacts | OutputsError | None] = []
        for location, facts in zip(locations, super().describe(locations, reads=reads, cancel=cancel), strict=True):
            answer = self._answers.get(location.name, facts)
            if answer is facts and not (self._has_digests or reads):
                assert facts is not None
                assert not isinstance(facts, OutputsError)
                answer = dataclasses.replace(facts, sha256="")
            found.append(answer)
        return tuple(found)

    def list_objects(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        denied = self._answers.get("listing")
        if denied is not None:
            raise denied
        return super().list_objects(location, cancel=cancel)


@pytest.mark.parametrize("name", ["a.log", SIDECAR])
def test_what_cannot_be_looked_at_is_a_failure_of_its_own(workspace: Path, name: str) -> None:
    backend = Troubled(workspace / STAGED, {name: NotPermittedError("denied", why="403")})
    report = verify(workspace, backend=backend)
    assert report.exit_code == 4
    assert [item.location.name for item in report.result.failed] == [name]
    assert report.outputs["same_count"] == "6"
    assert report.outputs["verified"] == "false"
    assert report.parts[0].note == "6 same, 1 not looked at"
    assert report.parts[0].state == "partly"


@pytest.mark.parametrize("name", ["a.log", SIDECAR])
def test_what_vanishes_while_it_is_checked_is_missing(workspace: Path, name: str) -> None:
    report = verify(workspace, backend=Troubled(workspace / STAGED, {name: None}))
    assert report.exit_code == 3
    assert report.outputs["missing_count"] == "1"


def test_where_the_service_keeps_no_digest_only_sizes_count_and_that_is_said(workspace: Path) -> None:
    lay(workspace, "logs/g/a.log", "x\n")
    report = verify(workspace, backend=Troubled(workspace / STAGED, {}, has_digests=False))
    assert report.error is None
    assert report.notices[0].startswith("6 objects: no SHA-256 was compared, because the service keeps none")
    assert {item.verified for item in report.result.stored} == {"size-only", "sha256-single"}
    read = verify(workspace, backend=Troubled(workspace / STAGED, {}, has_digests=False), check="read")
    assert read.exit_code == 6
    assert read.notices == ()


def test_only_that_is_looked_at_of_which_a_digest_decides(workspace: Path) -> None:
    lay(workspace, "logs/g/a.log", "longer\n")
    lay(workspace, "logs/g/extra.log", "x")
    backend = Troubled(workspace / STAGED, {})
    verify(workspace, backend=backend)
    assert set(backend.described) == {"b.log", ARCHIVE, "index.html", "index-g.html", "therock_manifest.json"}


def test_digests_that_nobody_knows_are_told_when_every_byte_was_read(workspace: Path) -> None:
    (record,) = (workspace / STAGED / P / "reports/upload-build").iterdir()
    document = json.loads(record.read_text())
    document["objects"] = [item | {"sha256": ""} for item in document["objects"]]
    record.write_text(json.dumps(document))
    report = verify(workspace, check="read")
    assert report.error is None
    assert report.notices == ("6 objects: no SHA-256 was compared, because none is known of them",)
    assert ARCHIVE in {item.location.name for item in report.result.stored if item.verified == "sha256-single"}, (
        "its sidecar knows"
    )


@pytest.mark.parametrize("check", ["stored", "read"])
def test_other_bytes_of_the_same_size_are_the_archive_s_fault_where_only_its_sidecar_has_a_digest(
    workspace: Path, check: str
) -> None:
    (record,) = (workspace / STAGED / P / "reports/upload-build").iterdir()
    document = json.loads(record.read_text())
    document["objects"] = [item | {"sha256": ""} for item in document["objects"]]
    record.write_text(json.dumps(document))
    lay(workspace, ARCHIVE, "ARCHIVE")
    report = verify(workspace, check=check)
    assert report.exit_code == 6
    assert {key for key, sign in states(report).items() if sign == "*"} == {ARCHIVE}
    assert ARCHIVE not in {item.location.name for item in report.result.stored}


@pytest.mark.parametrize("has_record", [True, False])
def test_an_archive_whose_digest_cannot_be_read_is_not_silently_the_same(tmp_path: Path, has_record: bool) -> None:
    archive_by_others(tmp_path)
    if has_record:
        objects = [{"key": f"{P}/{ARCHIVE}", "size_bytes": 4, "sha256": ""}]
        document = {"format": RECORD_FORMAT, "mode": "upload-artifacts", "subject": "s", "complete": True}
        document |= {"dry_run": False, "objects": objects}
        lay(tmp_path, "reports/upload-artifacts/r.json", json.dumps(document))
    lay(tmp_path, ARCHIVE, "DATA")
    report = verify(tmp_path, backend=Troubled(tmp_path / STAGED, {SIDECAR: NotPermittedError("denied", why="403")}))
    assert report.exit_code == 4
    assert report.warnings == (
        "the bytes of these archives were not compared, because the digests beside them could not be read: " + ARCHIVE,
    )
    (row,) = [row for row in report.tables[0].rows if row[1] == ARCHIVE]
    assert row == ("=", ARCHIVE, "the digest beside it could not be read, so its bytes were not compared")
    assert {item.verified for item in report.result.stored} == {"size-only"}


def test_records_that_cannot_be_used_are_told_in_words_about_records(workspace: Path) -> None:
    lay(workspace, "reports/upload-artifacts/junk.json", '{"a":1}')
    one_bad = verify(workspace)
    assert one_bad.exit_code == 6
    assert one_bad.error is not None
    assert one_bad.error.what == "the record 'reports/upload-artifacts/junk.json' cannot be used"
    assert one_bad.parts[0].note == "7 same, 1 record cannot be used"
    lay(workspace, "reports/upload-artifacts/junk2.json", "[]")
    two_bad = verify(workspace)
    assert two_bad.exit_code == 6
    assert two_bad.error is not None
    assert two_bad.error.what == "2 records of the run cannot be used"
    assert two_bad.error.why == (
        "the first: reports/upload-artifacts/junk.json: its format is null, and therock-outputs/report/1 is wanted"
    )
    denied = Troubled(workspace / STAGED, {"a.log": NotPermittedError("denied", why="403")})
    both = verify(workspace, backend=denied)
    assert both.exit_code == 4
    assert both.error is not None
    assert (both.error.what, both.error.why) == ("denied", "403; 2 records cannot be used, too")
    assert both.parts[0].note == "6 same, 1 not looked at, 2 records cannot be used"


def test_a_run_that_cannot_be_listed_is_an_error(workspace: Path) -> None:
    with pytest.raises(NotPermittedError):
        verify(workspace, backend=Troubled(workspace / STAGED, {"listing": NotPermittedError("no")}))


def test_a_cancel_ends_it(workspace: Path) -> None:
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError):
        verify(workspace, cancel=cancel)


def test_nothing_is_written(workspace: Path) -> None:
    before = sorted(path for path in (workspace / STAGED).rglob("*"))
    verify(workspace)
    assert sorted(path for path in (workspace / STAGED).rglob("*")) == before
