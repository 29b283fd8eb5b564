"""The job summary: what failed first, links that go somewhere, text that stays text, and it always fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import IncompleteError, IntegrityError, OutputsError, ServiceUnavailableError
from _therock_utils._transfer_types import SkippedFile, UploadResult
from fakes import markdown
from fakes.reports import HOSTILE_NAMES, STAGING, at, conflict, failed, report, result_of, stored
from therock_outputs.mode_names import Mode
from therock_outputs.render_summary import render_failure, render_summary
from therock_outputs.report import Part, Report, Snippet, Table
from therock_outputs.runner import MAX_SUMMARY_BYTES
from therock_outputs.text_safety import visible

WORKSPACE_FOLDER = Path("/github/workspace")


def rendered(it: Report, room_bytes: int = MAX_SUMMARY_BYTES) -> str:
    from therock_outputs.paths import Workspace

    return render_summary(it, workspace=Workspace(WORKSPACE_FOLDER), room_bytes=room_bytes)


LOGS = Part("Build logs", "stored", 1_234, 5_600_000, at("logs/math-libs/gfx1151/index.html"))
MANIFEST = Part("Manifest", "failed", note="1 of 1 not stored")


def test_a_good_run_reads_like_this() -> None:
    it = report(
        parts=(LOGS, Part("Manifest", "nothing", note="there is no build/manifest")),
        warnings=("Manifest: there is no build/manifest",),
        notices=("a notice",),
    )
    url = "https://therock-ci-artifacts.s3.amazonaws.com/12345-linux/logs/math-libs/gfx1151/index.html"
    assert rendered(it).splitlines() == [
        "### ⚠️ upload-stage · `math-libs/gfx1151`",
        "",
        "| What | Files | Size | Link |",
        "|---|--:|--:|---|",
        f"| Build logs | 1,234 | 5.6 MB | [index.html](<{url}>) |",
        "| Manifest |  |  | nothing found: there is no build/manifest |",
        "",
        "- ⚠️ Manifest: there is no build/manifest",
        "- a notice",
    ]


def test_what_failed_is_on_top_with_reason_and_remedy_and_its_files_below() -> None:
    error = IncompleteError("1 of 2 objects was not stored", why="access denied", remedy="Ask for access.")
    it = report(parts=(LOGS, MANIFEST), error=error, result=UploadResult(failed=(failed("m.json", error),)))
    lines = rendered(it).splitlines()
    assert lines[0].startswith("### ❌ ")
    assert lines[2:7] == ["> **1 of 2 objects was not stored**", ">", "> access denied", ">", "> Ask for access."]
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[1] == "| Manifest |  |  | **failed: 1 of 1 not stored** |"
    assert rows[2].startswith("| Build logs | 1,234 |")
    assert "<details><summary>Not stored: 1</summary>" in lines
    assert "- `m.json`" in lines


def test_files_of_the_workspace_are_named_as_the_job_knows_them() -> None:
    result = UploadResult(failed=(failed(str(WORKSPACE_FOLDER / "build/logs/a.log"), IntegrityError("changed")),))
    assert "- `build/logs/a.log`\n" in rendered(report(result=result))


def test_reasons_that_differ_are_told_with_each_file() -> None:
    causes = (IntegrityError("a changed"), ServiceUnavailableError("no answer for b"))
    result = UploadResult(failed=tuple(failed(path, error) for path, error in zip("ab", causes, strict=True)))
    assert "- `a`: a changed\n- `b`: no answer for b\n" in rendered(report(result=result))


def test_a_part_that_is_stored_in_part_is_on_top_too_and_keeps_its_link() -> None:
    partly = Part("Artifacts", "partly", 2, 3, at("index-g.html"), note="1 of 3 not stored")
    rows = [line for line in rendered(report(parts=(LOGS, partly))).splitlines() if line.startswith("| ")]
    assert rows[1].startswith("| Artifacts | 2 | 3 B | [index-g.html](<")
    assert rows[1].endswith(" · **incomplete: 1 of 3 not stored** |")


def test_a_good_run_without_a_subject_has_a_mark_and_its_mode() -> None:
    assert rendered(report(subject="", mode=Mode.LOCATE)) == "### ✅ locate\n"


def test_located_outputs_have_no_sizes() -> None:
    part = Part("Logs", "located", location=at("logs/index.html"), link_text="12345-linux/logs/index.html")
    assert "| What | Link |\n|---|---|\n| Logs | [12345-linux/logs/index.html](<https://" in rendered(
        report(parts=(part,))
    )


def test_a_staging_folder_is_said_and_its_paths_are_shown_instead_of_links() -> None:
    text = rendered(report(parts=(LOGS,), staging_dir=STAGING))
    assert "Staged, not uploaded: `out`\n" in text
    assert "`out/12345-linux/logs/math-libs/gfx1151/index.html`" in text
    assert markdown.links(text) == []


def test_a_dry_run_is_said_and_links_to_nothing() -> None:
    for staging_dir in (None, STAGING):
        text = rendered(report(parts=(LOGS,), dry_run=True, staging_dir=staging_dir))
        assert "Dry run: nothing was stored." in text
        assert "| `index.html` · would be stored |" in text
        assert "taged" not in text
        assert markdown.links(text) == []


def test_a_folder_is_no_link() -> None:
    part = Part("Tarballs", "located", location=at("tarballs"), link_text="12345-linux/tarballs", is_folder=True)
    text = rendered(report(parts=(part,)))
    assert "| Tarballs | `12345-linux/tarballs` |" in text
    assert markdown.links(text) == []


def test_a_run_that_left_a_file_out_is_not_all_good() -> None:
    text = rendered(report(result=UploadResult(skipped=(SkippedFile("logs/a", "it is a symbolic link"),))))
    assert text.startswith("### ⚠️ ")


def test_conflicts_say_what_was_done_and_who_wrote_what_lay_there() -> None:
    result = UploadResult(
        conflicts=(
            conflict("a", action="skipped", origin="1/build/2"),
            conflict("b", state="rerun", origin="12345/build/1"),
            conflict("c", state="unknown", action="refused"),
        )
    )
    text = rendered(report(result=result))
    assert "- `12345-linux/a`: skipped, written by `1/build/2`\n" in text
    assert "- `12345-linux/b`: overwritten, written by `12345/build/1` (an earlier attempt of this job)\n" in text
    assert "- `12345-linux/c`: refused\n" in text


def test_what_was_left_out_is_listed_with_the_reason() -> None:
    text = rendered(report(result=UploadResult(skipped=(SkippedFile("a_b", "it is a *pipe*"),))))
    assert "<details><summary>Left out: 1</summary>\n\n- `a_b`: it is a \\*pipe\\*\n\n</details>" in text


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_stays_text_wherever_it_is_shown(name: str) -> None:
    error = OutputsError(name, why=name, remedy=name)
    it = report(
        subject=name,
        parts=(Part(name, "failed", 1, 1, at("logs/index.html"), link_text=name, note=name),),
        result=UploadResult(
            stored=(stored("a"),),
            failed=(failed(name, error),),
            skipped=(SkippedFile(name, name),),
            conflicts=(conflict("a", origin=name),),
        ),
        notices=(name,),
        warnings=(name,),
        error=error,
    )
    for text in (rendered(it), render_failure(error)):
        assert markdown.links(text) in ([], [at("logs/index.html").https_url])
        html = [token.content.strip() for token in markdown.flat(markdown.parse(text)) if token.type.startswith("html")]
        ours = (*markdown.OUR_HTML, "</details>", *(f"<details><summary>{title}: 1</summary>" for title in _TITLES))
        assert set(html) <= set(ours)
        assert markdown.types(text).isdisjoint({"image", "em_open", "s_open", "fence", "code_block", "hr"})
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\r" not in text


_TITLES = ("Not stored", "Conflicts", "Left out")


def test_twenty_one_thousand_files_make_a_summary_that_fits_and_says_what_it_left_out() -> None:
    text = rendered(report(parts=(LOGS,), result=result_of(21_000)))
    assert len(text.encode()) < MAX_SUMMARY_BYTES // 10
    assert text.count("- and 20,950 more in the report file\n") == 3
    assert "<summary>Not stored: 21,000</summary>" in text


def test_many_warnings_are_counted() -> None:
    text = rendered(report(warnings=tuple(f"w{number}" for number in range(52))))
    assert "- ⚠️ w49\n- ⚠️ 2 more warnings in the report file" in text
    assert "w50" not in text


@given(st.integers(0, 25_000))
def test_a_summary_never_exceeds_its_room_and_ends_at_a_line(room_bytes: int) -> None:
    parts = tuple(Part(f"Päckchen {number}", "stored", 1, 1, at(f"logs/{number}")) for number in range(30))
    it = report(parts=parts, result=result_of(30), warnings=("ä" * 200,) * 10)
    whole, text = rendered(it), rendered(it, room_bytes)
    assert len(text.encode()) <= room_bytes
    if text == whole:
        return
    note = "(cut: the report file has the rest)\n"
    assert text.endswith(note) or not text
    assert "<details>" not in text
    kept = text.removesuffix(note).rstrip("\n")
    assert whole.startswith(kept)
    assert not kept or whole[len(kept)] == "\n"


def test_what_fits_to_the_byte_is_not_cut() -> None:
    it = report(parts=(LOGS,), result=result_of(2))
    whole = rendered(it)
    assert rendered(it, len(whole.encode())) == whole
    assert rendered(it, len(whole.encode()) - 1) != whole


def test_an_error_without_a_report_is_told_whole() -> None:
    assert render_failure(OutputsError("what", why="why", remedy="remedy")) == (
        "### ❌ therock-outputs\n\n> **what**\n>\n> why\n>\n> remedy"
    )
    assert render_failure(OutputsError("what")) == "### ❌ therock-outputs\n\n> **what**"


def test_a_table_is_folded_and_its_cells_are_text() -> None:
    table = Table("Compared", ("key", "state"), (("a|b.log", "<b>differs</b>"), ("c`d", "missing")), more=7)
    lines = rendered(report(tables=(table,))).splitlines()
    assert "<details><summary>Compared: 9</summary>" in lines
    assert lines[lines.index("| key | state |") + 1] == "|---|---|"
    assert r"| `a\x7cb.log` | &lt;b>differs&lt;/b> |" in lines
    assert "and 7 more" in lines


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_table_stays_a_table_whatever_its_cells_hold(name: str) -> None:
    text = rendered(report(tables=(Table(name, ("key", name), ((name, name), ("x", "y"))),)))
    assert [len(row) for row in _rows_of(markdown.cells(text))] == [2, 2, 2]
    assert markdown.links(text) == []


def _rows_of(cells: list[list[Any]]) -> list[list[Any]]:
    """Cells in rows of two."""
    return [cells[at : at + 2] for at in range(0, len(cells), 2)]


def test_a_long_table_is_shortened_and_an_empty_one_is_left_out() -> None:
    rows = tuple((f"key{number}", "same") for number in range(60))
    text = rendered(report(tables=(Table("Compared", ("key", "state"), rows), Table("Nothing", ("key",), ()))))
    assert "| `key49` | same |" in text
    assert "key50" not in text
    assert "and 10 more" in text
    assert "Nothing" not in text


def test_what_to_run_next_stands_above_the_table_but_below_what_failed() -> None:
    snippets = (Snippet("Install *it*:", "sh", ("one \\", "  two")), Snippet("Then:", "bat", ("three",)))
    error = OutputsError("not all of it")
    text = rendered(report(parts=(LOGS,), snippets=snippets, error=error))
    assert text.startswith(
        "### ❌ upload-stage · `math-libs/gfx1151`\n\n> **not all of it**\n\n"
        "Install \\*it\\*:\n\n```sh\none \\\n  two\n```\n\nThen:\n\n```bat\nthree\n```\n\n| What |"
    )


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_lines_to_run_stay_in_their_block(name: str) -> None:
    lines = (name, "```", f"``` {name}")
    text = rendered(report(parts=(LOGS,), snippets=(Snippet(name, "sh", lines),)))
    (fence,) = [token for token in markdown.parse(text) if token.type == "fence"]
    assert fence.content.splitlines() == [visible(line) for line in lines]
    assert markdown.links(text) == [at("logs/math-libs/gfx1151/index.html").https_url]
    html = {token.content for token in markdown.flat(markdown.parse(text)) if token.type.startswith("html")}
    assert html <= markdown.OUR_HTML


@given(st.integers(0, 2_500))
def test_a_summary_that_is_cut_never_ends_inside_a_block(room_bytes: int) -> None:
    snippet = Snippet("Install:", "sh", tuple(f"pip install package-{number}" for number in range(20)))
    it = report(parts=(LOGS,), snippets=(snippet,), result=result_of(2))
    text = rendered(it, room_bytes)
    assert len(text.encode()) <= room_bytes
    fences = [token.content for token in markdown.parse(f"{text}\nthe next step's\n") if token.type == "fence"]
    assert fences in ([], ["".join(f"{line}\n" for line in snippet.lines)])


def test_what_to_run_next_stays_where_only_the_details_do_not_fit() -> None:
    it = report(parts=(LOGS,), snippets=(Snippet("Install:", "sh", ("pip install rocm",)),), result=result_of(50))
    assert "```sh\npip install rocm\n```" in rendered(it, 2_000)


def test_what_is_fetched_is_not_called_stored() -> None:
    error = IntegrityError("the digest differs")
    result = UploadResult(failed=(failed("a.tar.zst", error), failed("b.tar.zst", IncompleteError("cut"))))
    text = rendered(report(verb="fetched", result=result, staging_dir=None))
    assert "<details><summary>Not fetched: 2</summary>" in text
    assert "Dry run: nothing was fetched." in rendered(report(verb="fetched", dry_run=True))
    part = Part("Artifacts", "stored", 1, 10, at("a.tar.zst"))
    assert "would be fetched" in rendered(report(verb="fetched", dry_run=True, parts=(part,)))
