"""A report sums up what happened: one error, one exit code, complete or not."""

from __future__ import annotations

from pathlib import Path

from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    CredentialsError,
    IncompleteError,
    IntegrityError,
    LocalFileError,
    ServiceUnavailableError,
)
from _therock_utils._folder import BlockedPathError
from _therock_utils._transfer_types import UploadResult
from fakes.reports import at, failed, report, stored
from therock_outputs.report import Part, error_of, has_one_cause, in_one_line


def test_nothing_failed_is_no_error() -> None:
    assert error_of(UploadResult(stored=(stored("a"),))) is None


def test_one_cause_for_everything_is_the_error_itself() -> None:
    errors = [CredentialsError(f"{name} was refused", why="no credentials", remedy="Give some.") for name in "ab"]
    result = UploadResult(failed=(failed("a", errors[0]), failed("b", errors[1])))
    assert error_of(result) is errors[0]
    assert has_one_cause(result)


def test_several_causes_are_one_error_that_counts_and_tells_the_first() -> None:
    first = IntegrityError("a changed", why="it grew", remedy="Wait.")
    result = UploadResult((stored("c"),), failed=(failed("a", first), failed("b", ServiceUnavailableError("busy"))))
    error = error_of(result)
    assert isinstance(error, IncompleteError)
    assert error.exit_code == 1
    assert error.what == "2 of 3 objects were not stored"
    assert error.why == "the first: a: a changed (it grew)"
    assert error.remedy == "Wait."


def test_a_first_cause_without_a_reason_is_told_without_one() -> None:
    result = UploadResult(failed=(failed("a", IntegrityError("x")), failed("b", ServiceUnavailableError("y"))))
    error = error_of(result)
    assert error is not None
    assert error.why == "the first: a: x"


def test_a_cancel_is_told_before_whatever_failed_besides() -> None:
    cancelled = CancelledError(15)
    result = UploadResult(failed=(failed("a", IntegrityError("x")), failed("b", cancelled)))
    assert error_of(result) is cancelled
    assert report(error=cancelled).exit_code == 143


def test_the_exit_code_is_the_errors() -> None:
    assert report().exit_code == 0
    assert report(error=IntegrityError("x")).exit_code == 6


def test_a_report_is_complete_when_nothing_failed() -> None:
    assert report().complete
    assert not report(error=IntegrityError("x")).complete
    assert not report(result=UploadResult(failed=(failed("a", IntegrityError("x")),))).complete


def test_a_page_that_only_the_server_makes_is_shown_as_its_folder_in_a_staging_folder() -> None:
    page = at("logs/index.html")
    staged = Path("/s/12345-linux/logs")
    assert Part("x", "stored", location=page).staged_path(Path("/s")) == staged / "index.html"
    assert Part("x", "stored", location=page, by_server=True).staged_path(Path("/s")) == staged
    assert Part("x", "stored").staged_path(Path("/s")) is None


def test_an_error_fits_on_one_line_with_its_reason_and_remedy() -> None:
    assert in_one_line(IntegrityError("a changed", why="it grew.", remedy="Wait.")) == "a changed. it grew. Wait"
    assert in_one_line(IntegrityError("a changed")) == "a changed"


def test_several_causes_of_one_kind_keep_its_exit_code() -> None:
    errors = [ConflictError("a is taken"), ConflictError("b was not stored", why="a is in conflict")]
    error = error_of(UploadResult(failed=(failed("a", errors[0]), failed("b", errors[1]))))
    assert isinstance(error, ConflictError)
    assert (error.what, error.exit_code) == ("2 of 2 objects were not stored", 6)


def test_a_kind_of_error_that_is_made_of_other_things_is_summed_up_by_the_one_above_it() -> None:
    errors = [BlockedPathError(Path("a"), found=found, wanted="a folder") for found in ("a file", "a socket")]
    error = error_of(UploadResult(failed=tuple(failed(str(error.path), error) for error in errors)))
    assert type(error) is LocalFileError
    assert error.exit_code == errors[0].exit_code
