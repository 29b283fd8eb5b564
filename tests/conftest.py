"""What all tests share: the marker `needs` skips what this machine cannot do, and fails it under REQUIRE_ALL=1."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# Things that are no program on PATH: the variable that says where they are (.ci/run sets them).
_VARIABLES = {"image": "THEROCK_OUTPUTS_IMAGE", "ministack": "THEROCK_OUTPUTS_MINISTACK"}
_FILES = {
    "locales": "/usr/share/i18n/locales/en_US",
    "nginx-lua": "/usr/lib/nginx/modules/ngx_http_lua_module.so",
}


def _is_here(name: str) -> bool:
    variable = _VARIABLES.get(name)
    if variable:
        return bool(os.environ.get(variable))
    if name in _FILES:
        return Path(_FILES[name]).exists()
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None  # servers are in /usr/sbin


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test marked `needs("name", ...)` when one of the names is not here."""
    names = [name for marker in item.iter_markers("needs") for name in marker.args]
    missing = [
        f"{name} ({_VARIABLES.get(name) or _FILES.get(name, 'no such program')})"
        for name in names
        if not _is_here(name)
    ]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
