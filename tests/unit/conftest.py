"""What unit tests share: patience with a busy machine, and an environment that is no job's."""

from __future__ import annotations

import os

import hypothesis
import pytest

hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

_JOB = ("ACTIONS_", "AWS_", "GH_", "GITHUB_", "INPUT_", "RUNNER_")


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out of the environment what a job's would have: these tests may run in one."""
    for name in list(os.environ):
        if name.startswith(_JOB) or name in {"IS_PR_FROM_FORK", "RELEASE_TYPE"}:
            monkeypatch.delenv(name)
