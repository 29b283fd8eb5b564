"""The lines that install packages of a repository, for a person to copy. Pure."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from therock_outputs.report import Snippet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path, PurePath

PackageType = Literal["deb", "rpm"]

SHOWN_NAMES: Final = 20
_TITLE: Final = "Install the packages:"
_MISREAD_BY_APT: Final = re.compile("%25[0-9A-Fa-f]{2}")  # it decodes a file's URL twice
_ENCODED_CURRENT_FOLDER: Final = "$(pwd | sed 's/%/%25/g; s/ /%20/g')"


def install_snippet(
    package_type: PackageType,
    names: Sequence[str],
    *,
    url: str = "",
    folder: Path | None = None,
    below_current: PurePath | None = None,
) -> Snippet:
    """How to install the packages `names` with apt or dnf from a repository.

    It is at `url`, percent-encoded; or in the absolute path `folder`; or `below_current`, the folder from which the
    lines are run, where whoever makes them is in a container and does not know which that is.
    """
    place = url
    if folder is not None:
        place = f"file://{_encoded(folder)}"
    elif below_current is not None:
        place = f"file://{_ENCODED_CURRENT_FOLDER}/{_encoded(below_current)}"
    if package_type == "deb" and _MISREAD_BY_APT.search(place.replace(_ENCODED_CURRENT_FOLDER, "")):
        why = "# apt cannot use this repository where it is: it misreads the % in the path. Copy it to another folder."
        return Snippet(_TITLE, "sh", (why,))
    chosen = [shlex.quote(name) for name in names[:SHOWN_NAMES]]
    more = [f"# and {len(names) - SHOWN_NAMES:,} more packages"] if len(names) > SHOWN_NAMES else []
    lines = _apt(place, chosen) if package_type == "deb" else _dnf(place, chosen)
    return Snippet(_TITLE, "sh", (*lines, *more))


def _apt(place: str, names: Sequence[str]) -> list[str]:
    """Nothing in an encoded URL acts in double quotes."""
    return [
        f'echo "deb [trusted=yes] {place} stable main" | sudo tee /etc/apt/sources.list.d/rocm.list',
        "sudo apt-get update",
        f"sudo apt-get install {' '.join(names)}",
    ]


def _dnf(place: str, names: Sequence[str]) -> list[str]:
    return [
        "sudo tee /etc/yum.repos.d/rocm.repo <<EOF",
        "[rocm]",
        "name=ROCm packages",
        f"baseurl={place}",
        "enabled=1",
        "gpgcheck=0",
        "EOF",
        f"sudo dnf install {' '.join(names)}",
    ]


def _encoded(path: PurePath) -> str:
    return quote(os.fsencode(path), safe="/")
