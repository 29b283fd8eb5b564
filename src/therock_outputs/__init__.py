"""The action: inputs and environment in; objects, links, outputs and a job summary out."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
