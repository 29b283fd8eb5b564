"""Whose run is it: read from the environment, the event payload and the API's record, none of which is trusted."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from _therock_utils._errors import GitHubError, InputError
from _therock_utils._run_identity import (
    RunRecord,
    is_fork_in_environment,
    parse_flag,
    read_record,
    repository_of_environment,
)
from _therock_utils.s3_buckets import Repository

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/buckets.json").read_text(encoding="utf-8"))
THEROCK = Repository.parse("ROCm/TheRock")
PULL_REQUEST = {
    "GITHUB_REPOSITORY": "ROCm/TheRock",
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_EVENT_PATH": "/github/workflow/event.json",
}


def payload(head_repository: object) -> bytes:
    return json.dumps({"pull_request": {"head": {"repo": head_repository}}}).encode()


def never(path: str) -> bytes:
    message = f"{path} was read, and the answer did not depend on it"
    raise AssertionError(message)


def is_fork(event: bytes, **environment: str) -> bool:
    return is_fork_in_environment(PULL_REQUEST | environment, lambda _: event)


@pytest.mark.parametrize("vector", VECTORS["environment"], ids=lambda vector: vector["note"])
def test_the_fork_is_decided_as_the_vectors_say(vector: dict[str, Any]) -> None:
    event = json.dumps(vector["event"]).encode()
    environment = vector["env"] | {"GITHUB_EVENT_PATH": "event.json"}
    assert is_fork_in_environment(environment, lambda _: event) is vector["is_pr_from_fork"]


# The environment


@pytest.mark.parametrize("value", ["true", "TRUE", "True", "1", "yes", "on", "true\n"])
def test_the_flag_decides_alone_where_it_is_true(value: str) -> None:
    assert is_fork_in_environment({"IS_PR_FROM_FORK": value}, never)
    assert is_fork_in_environment(PULL_REQUEST | {"IS_PR_FROM_FORK": value}, never)


@pytest.mark.parametrize("value", ["", "false", "FALSE", "0", "no", "off", " false", "\n"])
def test_a_flag_that_is_false_leaves_it_to_the_payload(value: str) -> None:
    assert not is_fork_in_environment({"IS_PR_FROM_FORK": value}, never)
    assert is_fork(payload({"full_name": "githubuser/TheRock"}), IS_PR_FROM_FORK=value)


@pytest.mark.parametrize("value", ["maybe", "true false", "2", "\ud800", "\uff54\uff52\uff55\uff45"])
def test_a_flag_that_is_neither_is_named(value: str) -> None:
    with pytest.raises(InputError, match="IS_PR_FROM_FORK") as caught:
        parse_flag("IS_PR_FROM_FORK", value)
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    "event", ["", "push", "schedule", "workflow_run", "workflow_dispatch", "merge_group", "release"]
)
def test_only_pull_requests_read_the_payload(event: str) -> None:
    assert not is_fork_in_environment(PULL_REQUEST | {"GITHUB_EVENT_NAME": event}, never)


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target"])
@pytest.mark.parametrize(
    ("head_repository", "expected"),
    [
        ({"full_name": "ROCm/TheRock", "fork": True}, False),
        ({"full_name": "rocm/therock"}, False),
        ({"full_name": "githubuser/TheRock"}, True),
        ({"full_name": "ROCm/TheRock2"}, True),
        ({"full_name": "ROCm/TheRoc\u212a"}, True),
        ({"full_name": "ROCm/TheRock\n"}, True),
        ({"full_name": ""}, True),
        ({"full_name": None}, True),
        ({}, True),
        (None, True),
    ],
)
def test_a_pull_request_is_a_forks_where_its_head_is_gone_or_elsewhere(
    event: str, head_repository: object, expected: bool
) -> None:
    assert is_fork(payload(head_repository), GITHUB_EVENT_NAME=event) is expected


def test_white_space_around_a_variable_is_no_part_of_it() -> None:
    blanks = {name: f" {value}\n" for name, value in PULL_REQUEST.items()}
    paths: list[str] = []

    def read_event(path: str) -> bytes:
        paths.append(path)
        return payload({"full_name": "ROCm/TheRock"})

    assert not is_fork_in_environment(blanks, read_event)
    assert paths == [PULL_REQUEST["GITHUB_EVENT_PATH"]]
    assert repository_of_environment(blanks) == THEROCK


def test_a_head_without_a_repository_is_a_deleted_forks() -> None:
    assert is_fork(b'{"pull_request": {"head": {}}}')


def test_a_payload_may_begin_with_a_byte_order_mark() -> None:
    assert not is_fork(b"\xef\xbb\xbf" + payload({"full_name": "ROCm/TheRock"}))


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"pull_request"',
        b"{}",
        b'{"pull_request": null}',
        b'{"pull_request": []}',
        b'{"pull_request": "text"}',
        b'{"pull_request": {}}',
        b'{"pull_request": {"head": null}}',
        b'{"pull_request": {"head": ["repo"]}}',
        b'{"pull_request": {"head": {"repo": "ROCm/TheRock"}}}',
        b'{"pull_request": {"head": {"repo": ""}}}',
        b'{"pull_request": {"head": {"repo": []}}}',
        b'{"pull_request": {"head": {"repo": false}}}',
        b'{"pull_request": {"head": {"repo": {"full_name": 7}}}}',
        b'{"pull_request": {"head": {"repo": {"full_name": {"a": 1}}}}}',
        b"[" * 500_000,
        b'{"a":' * 500_000,
        b"9" * 5000,
        payload({"full_name": "ROCm/TheRock", "description": "Größe"}).replace(b"\\u00f6", b"\xf6"),
        "{}".encode("utf-16"),
        b"\x00" * 10,
    ],
    ids=lambda event: ascii(event[:60]),
)
def test_a_payload_that_does_not_say_is_an_error_with_its_path(event: bytes) -> None:
    with pytest.raises(InputError) as caught:
        is_fork(event)
    assert PULL_REQUEST["GITHUB_EVENT_PATH"] in caught.value.what
    assert "IS_PR_FROM_FORK" in caught.value.remedy
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), PermissionError(), ValueError("embedded null")]
)
def test_a_payload_that_cannot_be_read_is_an_error_with_its_path(error: Exception) -> None:
    def read(path: str) -> bytes:
        raise error

    path = "/a/" + "long/" * 50 + "event.json"
    with pytest.raises(InputError) as caught:
        is_fork_in_environment(PULL_REQUEST | {"GITHUB_EVENT_PATH": path}, read)
    assert path in caught.value.what
    assert type(error).__name__ in caught.value.why


@pytest.mark.parametrize("environment", [{}, {"GITHUB_EVENT_PATH": ""}])
def test_a_pull_request_without_a_payload_is_an_error(environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match="GITHUB_EVENT_PATH is not set"):
        is_fork_in_environment({"GITHUB_EVENT_NAME": "pull_request"} | environment, never)


@pytest.mark.parametrize("environment", [{}, {"GITHUB_REPOSITORY": ""}])
def test_without_a_repository_it_is_therock(environment: dict[str, str]) -> None:
    assert repository_of_environment(environment) == THEROCK


def test_a_repository_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="owner/name"):
        repository_of_environment({"GITHUB_REPOSITORY": "ROCm"})


# The API's record


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({}, RunRecord(THEROCK, is_pr_from_fork=True, updated_at=None)),
        ({"head_repository": None}, RunRecord(THEROCK, is_pr_from_fork=True, updated_at=None)),
        ({"head_repository": {}}, RunRecord(THEROCK, is_pr_from_fork=True, updated_at=None)),
        ({"head_repository": {"full_name": "x/TheRock"}}, RunRecord(THEROCK, is_pr_from_fork=True, updated_at=None)),
        (
            {"head_repository": {"full_name": "rocm/therock"}, "repository": None},
            RunRecord(THEROCK, is_pr_from_fork=False, updated_at=None),
        ),
        (
            {"head_repository": {"full_name": "ROCm/TheRock"}, "repository": {"full_name": "ROCM/THEROCK"}},
            RunRecord(Repository("ROCM", "THEROCK"), is_pr_from_fork=False, updated_at=None),
        ),
        (
            {"head_repository": {"full_name": "ROCm/new-name"}, "repository": {"full_name": "ROCm/new-name"}},
            RunRecord(Repository("ROCm", "new-name"), is_pr_from_fork=False, updated_at=None),
        ),
    ],
)
def test_a_record_says_the_repository_and_the_fork(record: dict[str, Any], expected: RunRecord) -> None:
    assert read_record(record, repository=THEROCK) == expected


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-11-11T16:18:48Z", datetime.datetime(2025, 11, 11, 16, 18, 48, tzinfo=datetime.UTC)),
        ("2025-11-11T17:18:48+01:00", datetime.datetime(2025, 11, 11, 16, 18, 48, tzinfo=datetime.UTC)),
        ("2025-11-11T16:18:48", datetime.datetime(2025, 11, 11, 16, 18, 48, tzinfo=datetime.UTC)),
        ("2025-11-11T16:18:48.5Z", datetime.datetime(2025, 11, 11, 16, 18, 48, 500_000, tzinfo=datetime.UTC)),
        (None, None),
    ],
)
def test_a_record_says_the_instant(text: str | None, instant: datetime.datetime | None) -> None:
    updated_at = read_record({"updated_at": text}, repository=THEROCK).updated_at
    assert updated_at == instant
    assert updated_at is None or updated_at.tzinfo is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("updated_at", ""),
        ("updated_at", "yesterday"),
        ("updated_at", "2025-13-01T00:00:00Z"),
        ("updated_at", "\ud800"),
        ("updated_at", "9" * 10_000),
        ("updated_at", 20251111),
        ("updated_at", True),
        ("updated_at", ["2025-11-11T16:18:48Z"]),
        ("repository", "ROCm/TheRock"),
        ("repository", []),
        ("repository", {"full_name": "../evil"}),
        ("repository", {"full_name": "a/b\n"}),
        ("repository", {"full_name": "x" * 10_000}),
        ("repository", {"full_name": 7}),
        ("head_repository", "ROCm/TheRock"),
        ("head_repository", ""),
        ("head_repository", False),
        ("head_repository", {"full_name": ["ROCm/TheRock"]}),
    ],
)
def test_a_record_that_cannot_be_read_is_one_clear_error(name: str, value: object) -> None:
    with pytest.raises(GitHubError) as caught:
        read_record({name: value}, repository=THEROCK)
    assert caught.value.why
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 500
