"""Step outputs stay small and in order; the report document has everything; the console says the main things."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import IntegrityError, LocalFileError, OutputsError
from _therock_utils._transfer_types import SkippedFile, UploadResult
from fakes.reports import HOSTILE_NAMES, STAGING, at, conflict, failed, report, result_of, stored
from therock_outputs.render_outputs import (
    COMMON_OUTPUTS,
    MAX_OUTPUTS_BYTES,
    render_console,
    render_document,
    render_outputs,
)
from therock_outputs.report import Part, Snippet, Table


def total_bytes(outputs: dict[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in outputs.items())


def test_common_outputs_come_first_in_their_order_then_the_modes_own() -> None:
    it = report(
        page=at("logs/index.html"),
        result=UploadResult(stored=(stored("a", 5), stored("b", 7))),
        outputs={"log_url": "L", "manifest_url": ""},
    )
    outputs = render_outputs(it, report_path=".therock-outputs/x.json")
    assert list(outputs) == [*COMMON_OUTPUTS, "log_url", "manifest_url"]
    assert outputs == {
        "bucket": "therock-ci-artifacts",
        "prefix": "12345-linux",
        "s3_uri": "s3://therock-ci-artifacts/12345-linux",
        "url": "https://therock-ci-artifacts.s3.amazonaws.com/12345-linux/logs/index.html",
        "file_count": "2",
        "total_bytes": "12",
        "report": ".therock-outputs/x.json",
        "truncated": "false",
        "log_url": "L",
        "manifest_url": "",
    }


def test_there_is_no_url_where_there_is_no_page() -> None:
    assert render_outputs(report(), report_path="")["url"] == ""


def test_the_longest_values_give_way_until_all_fit() -> None:
    own = {"a": "x" * 9_000, "b": "ü" * 4_000, "c": "z" * 3_000}
    outputs = render_outputs(report(outputs=own), report_path="r")
    assert (outputs["a"], outputs["b"], outputs["c"]) == ("", own["b"], own["c"])
    assert outputs["truncated"] == "true"
    assert total_bytes(outputs) <= MAX_OUTPUTS_BYTES


def test_what_fits_to_the_byte_is_whole() -> None:
    free = MAX_OUTPUTS_BYTES - total_bytes(render_outputs(report(outputs={"a": ""}), report_path=""))
    assert render_outputs(report(outputs={"a": "x" * free}), report_path="")["truncated"] == "false"
    cut = render_outputs(report(outputs={"a": "x" * (free + 1)}), report_path="")
    assert (cut["truncated"], cut["a"]) == ("true", "")


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=4).map(lambda text: text * 2_000)))
def test_outputs_never_exceed_their_bound(own: dict[str, str]) -> None:
    own = {name: value.encode(errors="replace").decode() for name, value in own.items()}
    outputs = render_outputs(report(outputs=own), report_path="r")
    assert total_bytes(outputs) <= MAX_OUTPUTS_BYTES
    assert outputs["prefix"] == "12345-linux"
    assert (outputs["truncated"] == "true") == any(outputs[name] != value for name, value in own.items())


def test_the_document_has_every_object_and_both_sides() -> None:
    error = IntegrityError("changed", why="it grew")
    it = report(
        result=UploadResult(
            stored=(stored("a+b", 5),),
            skipped=(SkippedFile("link", "it is a symbolic link"),),
            failed=(failed("bad", error),),
            conflicts=(conflict("a+b", origin="1/x/1"),),
        ),
        outputs={"log_url": "L"},
        warnings=("w",),
        notices=("n",),
        error=error,
    )
    document = json.loads(render_document(it))
    assert document["objects"] == [
        {
            "key": "12345-linux/a+b",
            "size_bytes": 5,
            "sha256": f"{5:064x}",
            "content_type": "text/plain; charset=utf-8",
            "verified": "sha256-single",
            "url": "https://therock-ci-artifacts.s3.amazonaws.com/12345-linux/a%2Bb",
        }
    ]
    assert document["failed"] == [{"path": "bad", "key": "12345-linux/logs/x", "error": "changed\nit grew"}]
    assert document["skipped"] == [{"path": "link", "reason": "it is a symbolic link"}]
    assert document["conflicts"] == [
        {"key": "12345-linux/a+b", "state": "different", "origin": "1/x/1", "action": "overwritten"}
    ]
    assert (document["complete"], document["error"]) == (False, "changed\nit grew")
    assert (document["file_count"], document["total_bytes"]) == (1, 5)
    assert (document["warnings"], document["notices"], document["outputs"]) == (["w"], ["n"], {"log_url": "L"})


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "\udcff.log"])
def test_any_name_comes_back_out_of_the_document(name: str) -> None:
    data = render_document(report(result=UploadResult(skipped=(SkippedFile(name, "x"),))))
    assert json.loads(data)["skipped"][0]["path"] == name
    assert data.endswith(b"}\n")


def test_the_same_report_gives_the_same_bytes() -> None:
    assert render_document(report(result=result_of(3))) == render_document(report(result=result_of(3)))


def test_the_console_says_what_is_where_and_what_is_missing() -> None:
    it = report(
        parts=(
            Part("Build logs", "stored", 2, 1_500, at("logs/index.html")),
            Part("Manifest", "nothing", note="there is none"),
        ),
        result=UploadResult(
            stored=(stored("a", 1_500),),
            skipped=(SkippedFile("link", "it is a symbolic link"),),
            failed=(failed("bad.log", IntegrityError("changed")), failed("c.log", LocalFileError("no permission"))),
        ),
    )
    assert list(render_console(it)) == [
        "stored 1 object (1.5 kB) under s3://therock-ci-artifacts/12345-linux",
        "  Build logs: stored, 2 files, 1.5 kB",
        "    https://therock-ci-artifacts.s3.amazonaws.com/12345-linux/logs/index.html",
        "  Manifest: nothing (there is none)",
        "  left out link: it is a symbolic link",
        "  NOT stored bad.log: changed",
        "  NOT stored c.log: no permission",
    ]


def test_the_console_leaves_a_reason_that_all_share_to_the_error() -> None:
    error = IntegrityError("changed")
    lines = list(render_console(report(result=UploadResult(failed=(failed("a", error), failed("b", error))))))
    assert lines[1:] == ["  NOT stored a", "  NOT stored b"]


def test_the_console_names_local_paths_of_what_is_staged() -> None:
    lines = list(
        render_console(
            report(
                parts=(Part("Logs", "stored", 1, 1, at("logs/index.html")),),
                result=UploadResult(stored=(stored("a"),)),
                staging_dir=STAGING,
            )
        )
    )
    assert lines[:2] == [
        "staged 1 object (1 B) under s3://therock-ci-artifacts/12345-linux",
        f"staged, not uploaded: {STAGING}",
    ]
    assert lines[3] == f"    {STAGING / '12345-linux' / 'logs' / 'index.html'}"


def test_the_console_of_a_dry_run_says_would() -> None:
    parts = (Part("Logs", "stored", 1, 1, at("logs/index.html")),)
    result = UploadResult(stored=(stored("a"),))
    for staging_dir in (None, STAGING):
        it = report(parts=parts, result=result, staging_dir=staging_dir, dry_run=True)
        assert list(render_console(it)) == [
            "would store 1 object (1 B) under s3://therock-ci-artifacts/12345-linux",
            "  Logs: would be stored, 1 file, 1 B",
        ]


def test_the_console_names_a_folder_by_its_s3_uri() -> None:
    part = Part("Tarballs", "located", location=at("tarballs"), is_folder=True)
    assert list(render_console(report(parts=(part,)))) == [
        "  Tarballs: located",
        "    s3://therock-ci-artifacts/12345-linux/tarballs",
    ]


def test_the_console_has_nothing_to_say_where_nothing_was_done() -> None:
    assert list(render_console(report())) == []


def test_the_console_stays_short_with_twenty_one_thousand_files() -> None:
    lines = list(render_console(report(result=result_of(21_000))))
    assert len(lines) == 43
    assert "  left out: 20,980 more" in lines
    assert lines[-1] == "  NOT stored: 20,980 more"


def test_the_console_uses_the_modes_own_verb() -> None:
    it = report(
        verb="fetched",
        parts=(Part("Artifacts", "partly", 1, 1),),
        result=UploadResult((stored("a.tar.zst"),), failed=(failed("b.tar.zst", OutputsError("cut")),)),
    )
    assert list(render_console(it)) == [
        "fetched 1 object (1 B) under s3://therock-ci-artifacts/12345-linux",
        "  Artifacts: partly, 1 file, 1 B",
        "  NOT fetched b.tar.zst",
    ]
    dry = list(render_console(dataclasses.replace(it, dry_run=True)))
    assert dry[:2] == [
        "would fetch 1 object (1 B) under s3://therock-ci-artifacts/12345-linux",
        "  Artifacts: would be fetched in part, 1 file, 1 B",
    ]


def test_the_console_shows_the_first_rows_of_a_table_and_counts_the_rest() -> None:
    rows = tuple(("=", f"key{number}") for number in range(25))
    lines = list(render_console(report(tables=(Table("Compared", ("state", "key"), rows, more=3),))))
    assert lines[0] == "  Compared =  key0"
    assert lines[-1] == "  Compared: 8 more"


def test_where_no_run_was_found_the_outputs_about_it_are_empty() -> None:
    it = report(root=None, verb="found")
    outputs = render_outputs(it, report_path="")
    assert [outputs[name] for name in ("bucket", "prefix", "s3_uri", "url")] == [""] * 4
    document = json.loads(render_document(it))
    assert [document[name] for name in ("bucket", "prefix", "run_id", "platform")] == [""] * 4
    assert list(render_console(it)) == []


def test_the_console_shows_what_to_run_next() -> None:
    snippet = Snippet("Install:", "sh", ("pip install rocm \\", "  --no-index"))
    lines = list(render_console(report(snippets=(snippet,))))
    assert lines[-3:] == ["  Install:", "    pip install rocm \\", "      --no-index"]


def test_the_document_has_what_to_run_next() -> None:
    document = json.loads(render_document(report(snippets=(Snippet("Install:", "sh", ("pip install rocm",)),))))
    assert document["snippets"] == [{"title": "Install:", "language": "sh", "lines": ["pip install rocm"]}]


def test_the_document_has_the_tables() -> None:
    document = json.loads(render_document(report(tables=(Table("T", ("a", "b"), (("1", "2"),), more=4),))))
    assert document["tables"] == [{"title": "T", "columns": ["a", "b"], "rows": [["1", "2"]], "more": 4}]


def test_a_json_value_that_does_not_fit_is_still_json() -> None:
    own = {"artifacts": json.dumps(["a" * 100] * 200), "per_stage": json.dumps({"s": ["b" * 100] * 200}), "kept": "[1]"}
    outputs = render_outputs(report(outputs=own), report_path="")
    assert (outputs["artifacts"], outputs["per_stage"], outputs["kept"]) == ("[]", "{}", "[1]")
    assert outputs["truncated"] == "true"
