"""The S3 servers that integration tests share. What a test makes in them it removes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.ministack_server import ministack_server
from fakes.moto_server import moto_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(scope="session")
def ministack_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = Path(os.environ["THEROCK_OUTPUTS_MINISTACK"])
    with ministack_server(program, tmp_path_factory.mktemp("ministack")) as url:
        yield url
