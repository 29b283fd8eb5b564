"""Prints the files of the pure core ([tool.therock-outputs] in pyproject.toml) with commas; fails if one is missing."""

import sys
import tomllib
from pathlib import Path

project = Path(__file__).resolve().parent.parent
files = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["therock-outputs"]["pure-core"]
if missing := [name for name in files if not (project / name).is_file()]:
    sys.exit(f"pyproject.toml names files of the pure core that do not exist: {', '.join(missing)}")
print(",".join(files))
