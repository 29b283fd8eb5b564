"""The AWS environment of a test: nothing of the machine's own, and an endpoint on 127.0.0.1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ACCESS_KEY_ID = "AKIATESTTESTTEST1234"


def clean_aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away every AWS and proxy setting, and every place where credentials could be found."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def use_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Made-up credentials, and `url` instead of AWS."""
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
