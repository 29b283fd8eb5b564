"""From what was planned and what came of it to warnings, errors and the rows of the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from _therock_utils._errors import IntegrityError, NotFoundError
from _therock_utils._transfer_types import UploadItem, UploadResult
from fakes.reports import at, failed, stored
from therock_outputs.modes._plan import IfMissing, PlannedPart, missing_findings, report_parts

PAGE = at("logs/x/index.html")


def items(*paths: str) -> tuple[UploadItem, ...]:
    return tuple(UploadItem(Path(path), at(path)) for path in paths)


def refused(path: str) -> Any:  # noqa: ANN401 - FailedItem with a location of its own
    import dataclasses

    return dataclasses.replace(failed(path, IntegrityError("it differs")), location=at(path))


def row(part: PlannedPart, result: UploadResult) -> Any:  # noqa: ANN401 - Part
    (only,) = report_parts((part,), result)
    return only


@pytest.mark.parametrize(("if_missing", "warns", "fails"), [("error", 0, 1), ("warn", 1, 0), ("ignore", 0, 0)])
def test_a_part_with_nothing_to_store_is_an_error_a_warning_or_nothing(
    if_missing: IfMissing, warns: int, fails: int
) -> None:
    part = PlannedPart("Build logs", absence="there is no build", if_missing=if_missing)
    warnings, error = missing_findings((part,))
    assert warnings == ("Build logs: there is no build",) * warns
    assert isinstance(error, NotFoundError) == bool(fails)


def test_all_missing_parts_are_one_error_with_their_reasons_and_the_remedy() -> None:
    parts = tuple(PlannedPart(name, absence=f"no {name}", if_missing="error") for name in ("Logs", "Artifacts"))
    _, error = missing_findings(parts)
    assert error is not None
    assert (error.what, error.why) == ("nothing to store: Logs, Artifacts", "no Logs; no Artifacts")
    assert "if_no_files_found: warn" in error.remedy
    assert error.exit_code == 3


@pytest.mark.parametrize(
    "part",
    [
        PlannedPart("Logs", items("a"), absence="no logs", if_missing="error"),
        PlannedPart("Logs", failed=(refused("a"),), absence="no logs", if_missing="error"),
        PlannedPart("Logs", if_missing="error"),
    ],
    ids=["has items", "has failed ones", "nothing was wanted"],
)
def test_a_part_that_has_something_is_not_missing(part: PlannedPart) -> None:
    assert missing_findings((part,)) == ((), None)


def test_a_row_counts_its_own_objects_and_links_to_its_page() -> None:
    part = PlannedPart("Logs", items("a", "b"), page=PAGE)
    it = row(
        part, UploadResult(stored=(stored("a", 2), stored("b", 3), stored("other", 9), stored("logs/x/index.html")))
    )
    assert (it.state, it.file_count, it.total_bytes, it.location, it.note) == ("stored", 2, 5, PAGE, "")


def test_a_row_links_to_no_page_that_was_not_stored() -> None:
    assert row(PlannedPart("Logs", items("a"), page=PAGE), UploadResult(stored=(stored("a"),))).location is None


def test_a_page_that_the_server_makes_is_linked_once_something_is_stored() -> None:
    part = PlannedPart("Logs", items("a")).with_page(PAGE, by_server=True)
    it = row(part, UploadResult(stored=(stored("a"),)))
    assert (it.location, it.by_server, it.note) == (PAGE, True, "the server makes this page")
    nothing = row(part, UploadResult())
    assert (nothing.location, nothing.by_server) == (None, False)


def test_a_page_that_the_build_brings_is_its_own() -> None:
    part = PlannedPart("Logs", items("logs/x/index.html")).with_page(PAGE, by_server=True)
    it = row(part, UploadResult(stored=(stored("logs/x/index.html"),)))
    assert (it.location, it.by_server, it.note) == (PAGE, False, "")
    assert part.brings(PAGE)
    assert not part.brings(at("logs/y/index.html"))


@pytest.mark.parametrize(
    ("kept", "bad", "state", "note"),
    [
        (("a",), ("b",), "partly", "1 of 2 not stored"),
        ((), ("a", "b"), "failed", "2 of 2 not stored"),
    ],
)
def test_failures_make_a_row_incomplete_or_failed(
    kept: tuple[str, ...], bad: tuple[str, ...], state: str, note: str
) -> None:
    result = UploadResult(stored=tuple(map(stored, kept)), failed=tuple(map(refused, bad)))
    it = row(PlannedPart("Logs", items("a", "b")), result)
    assert (it.state, it.note, it.file_count) == (state, note, len(kept))


def test_a_file_that_could_not_be_prepared_counts_as_failed_and_so_does_one_that_is_stored_and_unsound() -> None:
    part = PlannedPart("Artifacts", items("a", "b"), failed=(refused("c"),))
    it = row(part, UploadResult(stored=(stored("a"), stored("b")), failed=(refused("b"), refused("c"))))
    assert (it.state, it.note, it.file_count) == ("partly", "2 of 3 not stored", 1)


def test_incomplete_and_made_by_the_server_are_both_said() -> None:
    part = PlannedPart("Logs", items("a", "b"), page=PAGE, page_by_server=True)
    it = row(part, UploadResult(stored=(stored("a"),), failed=(refused("b"),)))
    assert it.note == "1 of 2 not stored; the server makes this page"


def test_a_row_without_files_says_why() -> None:
    it = row(PlannedPart("Logs", absence="there is no build"), UploadResult())
    assert (it.state, it.note) == ("nothing", "there is no build")


def test_a_row_whose_files_were_all_left_alone_says_so() -> None:
    it = row(PlannedPart("Logs", items("a")), UploadResult())
    assert (it.state, it.note) == ("left-out", "nothing had to be stored")


def test_a_page_that_was_kept_is_linked_though_it_was_not_stored() -> None:
    (it,) = report_parts((PlannedPart("Logs", items("a"), page=PAGE),), UploadResult(stored=(stored("a"),)), {PAGE})
    assert (it.location, it.by_server) == (PAGE, False)
