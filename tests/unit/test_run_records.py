"""Records are claims: what fits is read, everything else is refused with a reason, and nothing of it is trusted."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, IntegrityError, NotFoundError, NotPermittedError
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES
from _therock_utils.storage_backend import LocalStorageBackend
from fakes import reports
from fakes.trees import write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.render_outputs import render_document
from therock_outputs.run_records import RECORD_FORMAT, is_record_name, parse_record, read_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_location import StorageLocation

P = reports.ROOT.prefix
NAME = "reports/upload-stage/math-libs-build-1-00ff.json"
DIGEST = "0" * 63 + "1"


def document(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A record's document; a change to `...` takes the key away."""
    entry = {"key": f"{P}/logs/a.log", "size_bytes": 1, "sha256": DIGEST}
    fields: dict[str, Any] = {
        "format": RECORD_FORMAT,
        "mode": "upload-stage",
        "subject": "math-libs",
        "complete": True,
        "dry_run": False,
        "objects": [entry],
    }
    fields |= changes
    return {key: value for key, value in fields.items() if value is not ...}


def entry(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"objects": [{"key": f"{P}/logs/a.log", "size_bytes": 1, "sha256": DIGEST} | changes]}


def parse(data: bytes | object, name: str = NAME) -> Any:  # noqa: ANN401 - a RunRecord
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return parse_record(text, name=name, prefix=P)


def reason(data: bytes | object) -> str:
    with pytest.raises(IntegrityError) as caught:
        parse(data)
    assert caught.value.what == f"the record '{NAME}' cannot be used"
    assert caught.value.why.isprintable()
    return caught.value.why


def test_what_an_upload_leaves_is_read_back() -> None:
    stored = (reports.stored("logs/a.log", 5), dataclasses.replace(reports.stored("b_lib_generic.tar.xz"), sha256=""))
    report = reports.report(result=reports.UploadResult(stored=stored))
    record = parse(render_document(report))
    assert (record.name, record.mode, record.subject, record.complete) == (
        NAME,
        "upload-stage",
        "math-libs/gfx1151",
        True,
    )
    assert [(item.key, item.size_bytes, item.sha256) for item in record.objects] == [
        (item.location.relative_path, item.size_bytes, item.sha256) for item in stored
    ]
    assert record.per_stage == {}


def test_what_was_not_stored_makes_a_record_incomplete() -> None:
    result = reports.UploadResult(failed=(reports.failed("x", NotFoundError("gone")),))
    assert parse(render_document(reports.report(result=result))).complete is False


def test_a_copy_s_record_says_which_artifact_is_of_which_stage() -> None:
    per_stage = {"math-libs": ["blas_lib_gfx942"], "comm-libs": []}
    report = reports.report(mode=Mode.COPY_ARTIFACTS, outputs={"per_stage": json.dumps(per_stage)})
    record = parse(render_document(report), "reports/copy-artifacts/x.json")
    assert record.per_stage == {"math-libs": ("blas_lib_gfx942",), "comm-libs": ()}


def test_keys_that_are_not_known_are_passed_over() -> None:
    assert parse(document(future={"a": 1}, **entry(etag="x"))).objects[0].key == f"{P}/logs/a.log"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is not JSON: Expecting value"),
        (b"\xff{}", "it is not JSON: 'utf-8' codec"),
        (b"\xef\xbb\xbf{}", "it is not JSON: "),
        (b'{"a": NaN}', "it is not JSON: NaN is no number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "it is not JSON: "),
        (b"[" * 100_000, "it is nested too deeply"),
        ([], "it must be an object, not a list"),
        (None, "it must be an object, not null"),
        (1.5, "it must be an object, not a fraction"),
        (document(format=...), "its format is null, and therock-outputs/report/1 is wanted"),
        (document(format="therock-outputs/report/2"), "its format is 'therock-outputs/report/2', and "),
        (document(format=[]), "its format is a list, and "),
        (document(mode=...), "mode must be a string, not null"),
        (document(mode="upload-build"), "its mode is 'upload-build', and it lies in another one's folder"),
        (document(dry_run=True), "it is of a dry run, which stores nothing"),
        (document(dry_run=0), "dry_run must be true or false, not a whole number"),
        (document(subject=None), "subject must be a string, not null"),
        (document(complete="true"), "complete must be true or false, not a string"),
        (document(objects={}), "objects must be a list, not an object"),
        (document(objects=[7]), "objects[0] must be an object, not a whole number"),
        (document(**entry(key=1)), "objects[0].key must be a string, not a whole number"),
        (document(**entry(key="")), "objects[0].key '': it is not in this run"),
        (document(**entry(key=P)), f"objects[0].key '{P}': it is not in this run"),
        (document(**entry(key=f"{P}2/a")), f"objects[0].key '{P}2/a': it is not in this run"),
        (document(**entry(key=f"{P}/../x")), f"objects[0].key '{P}/../x': it has the segment '..'"),
        (document(**entry(key=f"{P}/a\n")), f"objects[0].key '{P}/a\\n': it has a control character"),
        (document(**entry(key=f"{P}/\ud800")), f"objects[0].key '{P}/\\ud800': it is not valid Unicode"),
        (document(**entry(key=f"{P}/{'a' * 1100}")), f"objects[0].key '{P}/aaa"),
        (document(**entry(size_bytes=True)), "objects[0].size_bytes must be a whole number, not true or false"),
        (document(**entry(size_bytes=1.0)), "objects[0].size_bytes must be a whole number, not a fraction"),
        (document(**entry(size_bytes=-1)), "objects[0].size_bytes is negative"),
        (document(**entry(sha256=None)), "objects[0].sha256 must be a string, not null"),
        (document(**entry(sha256="ABC")), "objects[0].sha256 'ABC' is no SHA-256 in lower-case hex"),
        (document(**entry(sha256=f"{DIGEST}\n")), "objects[0].sha256 '000"),
        (document(outputs=[]), "outputs must be an object, not a list"),
        (document(outputs={"per_stage": {}}), "outputs.per_stage must be a string, not an object"),
        (document(outputs={"per_stage": "{"}), "outputs.per_stage is not JSON"),
        (document(outputs={"per_stage": "[" * 100_000}), "outputs.per_stage is nested too deeply"),
        (document(outputs={"per_stage": "[]"}), "outputs.per_stage must be an object, not a list"),
        (document(outputs={"per_stage": '{"a": 1}'}), "outputs.per_stage must be a list, not a whole number"),
        (document(outputs={"per_stage": '{"a": ["x/y"]}'}), "outputs.per_stage has the name 'x/y': it has a '/'"),
    ],
)
def test_anything_else_is_refused_with_the_reason(data: bytes | object, why: str) -> None:
    assert reason(data).startswith(why)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
CHANGES = st.dictionaries(st.sampled_from([*document(), "outputs"]), JSON, max_size=3)


@given(JSON)
def test_no_json_value_raises_anything_but_the_documented_error(value: object) -> None:
    with pytest.raises(IntegrityError):
        parse(value)


@given(CHANGES, st.dictionaries(st.sampled_from(["key", "size_bytes", "sha256"]), JSON, max_size=2))
@example({}, {})
def test_a_record_with_wrong_parts_is_read_or_refused_and_never_leaves_its_run(
    changes: dict[str, Any], entry_changes: dict[str, Any]
) -> None:
    try:
        record = parse(document(**entry(**entry_changes)) | changes)
    except IntegrityError:
        return
    assert all(item.key.startswith(f"{P}/") and item.size_bytes >= 0 for item in record.objects)


@given(st.binary(max_size=64), st.text(max_size=20))
def test_no_bytes_and_no_name_raise_anything_but_the_documented_error(data: bytes, name: str) -> None:
    with pytest.raises(IntegrityError):
        parse(data, name)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (NAME, True),
        ("reports/upload-stage/a.txt", False),
        ("reports/a.json", False),
        ("reports/upload-stage/x/a.json", False),
        ("logs/upload-stage/a.json", False),
    ],
)
def test_a_record_lies_in_the_folder_of_its_mode(name: str, is_one: bool) -> None:
    assert is_record_name(name) == is_one


# Reading them from a storage

ROOT = reports.ROOT


class Watched(LocalStorageBackend):
    """Keeps how many bytes were asked for at once; can refuse one name."""

    def __init__(self, staging_dir: Path, refused: str = "", gone: str = "") -> None:
        super().__init__(staging_dir)
        self.batches: list[list[str]] = []
        self._refused, self._gone = refused, gone

    def read_all_small(
        self, locations: Sequence[StorageLocation], *, cancel: CancelToken | None = None
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        self.batches.append([location.name for location in locations])
        answers = super().read_all_small(locations, cancel=cancel)
        return tuple(
            NotPermittedError("no")
            if location.name == self._refused
            else None
            if location.name == self._gone
            else answer
            for location, answer in zip(locations, answers, strict=True)
        )


def lay(folder: Path, *names: str, **changes: Any) -> None:  # noqa: ANN401 - any JSON
    for name in names:
        mode = name.split("/")[1]
        write_tree(folder / P, {name: json.dumps(document(mode=mode, subject=name, **changes))})


def test_all_records_are_read_in_key_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    lay(tmp_path, "reports/upload-stage/b.json", "reports/upload-stage/a.json", "reports/later/c.json")
    write_tree(tmp_path / P, {"reports/readme.txt": "x", "reports/a/b/c.json": "{}", "logs/reports/x/y.json": "{}"})
    found = read_records(LocalStorageBackend(tmp_path), ROOT)
    names = ["reports/later/c.json", "reports/upload-stage/a.json", "reports/upload-stage/b.json"]
    assert [record.name for record in found.records] == names
    assert found.failed == ()
    assert found.keys == set(names)


def test_only_the_modes_asked_for_are_read(tmp_path: Path) -> None:
    lay(tmp_path, "reports/upload-stage/a.json", "reports/upload-artifacts/b.json", "reports/copy-artifacts/c.json")
    backend = Watched(tmp_path)
    found = read_records(backend, ROOT, modes=["upload-artifacts", "copy-artifacts", "upload-artifacts"])
    assert [record.name for record in found.records] == [
        "reports/copy-artifacts/c.json",
        "reports/upload-artifacts/b.json",
    ]
    assert backend.batches == [["c.json", "b.json"]]


def test_a_run_without_records_has_none(tmp_path: Path) -> None:
    assert read_records(LocalStorageBackend(tmp_path), ROOT).records == ()
    assert read_records(LocalStorageBackend(tmp_path), ROOT, modes=["upload-stage"]).keys == frozenset()


def test_a_record_that_cannot_be_used_costs_only_itself(tmp_path: Path) -> None:
    names = [f"reports/upload-stage/{name}.json" for name in ("a", "bad", "denied", "gone", "huge")]
    lay(tmp_path, *names)
    (tmp_path / P / names[1]).write_text("{}")
    with (tmp_path / P / names[4]).open("wb") as file:
        file.truncate(SMALL_OBJECT_LIMIT_BYTES + 1)
    backend = Watched(tmp_path, refused="denied.json", gone="gone.json")
    found = read_records(backend, ROOT)
    assert [record.name for record in found.records] == names[:1]
    assert [item.path for item in found.failed] == names[1:]
    assert [type(item.error) for item in found.failed] == [
        IntegrityError,
        NotPermittedError,
        NotFoundError,
        IntegrityError,
    ]
    assert [item.error.what for item in found.failed] == [
        f"the record '{names[1]}' cannot be used",
        f"the record '{names[2]}' cannot be read",
        f"the record '{names[3]}' was listed and is gone",
        f"the record '{names[4]}' cannot be read",
    ]
    assert found.failed[1].error.why == "no"
    assert "huge.json" not in [name for batch in backend.batches for name in batch], "it was not even read"
    assert found.keys == set(names)


def test_no_more_than_two_of_the_largest_records_are_in_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, *(f"reports/upload-stage/{number}.json" for number in range(7)))
    size_bytes = (tmp_path / P / "reports/upload-stage/0.json").stat().st_size
    monkeypatch.setattr("therock_outputs.run_records._BATCH_BYTES", 3 * size_bytes)
    backend = Watched(tmp_path)
    assert len(read_records(backend, ROOT).records) == 7
    assert [len(batch) for batch in backend.batches] == [3, 3, 1]


def test_a_cancel_ends_it(tmp_path: Path) -> None:
    lay(tmp_path, "reports/upload-stage/a.json")
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError):
        read_records(LocalStorageBackend(tmp_path), ROOT, cancel=cancel)
