"""Tells keys with a slash at their end, which stand for folders, from the keys of objects. Pure.

obstore shows such a key `x/` as `x`; in the order of the service it stands where `x/` does.
"""

from __future__ import annotations

from typing import Literal


class ShownKeys:
    """The keys of one listing, taken in the order in which they are shown. Memory: those that begin alike.

    An `x/` that follows the object `x`, or what sorts between both, is known; any other is shown as an object would be.
    """

    def __init__(self, *, after: str) -> None:
        """`after`: the service was asked for keys behind this one; "" for all."""
        self._after = after
        self._alike: list[str] = []  # each begins with the one before it: what sorts between `x` and `x/` begins with x
        self.highest = after

    def take(self, key: str) -> Literal["object", "folder", "unknown"]:
        """What the next key stands for; `unknown` where it is out of order, which an `x/` can be and no object is."""
        if key.endswith("/") or key <= self._after:
            return "folder"
        while self._alike and not key.startswith(self._alike[-1]):
            self._alike.pop()
        if self._alike and self._alike[-1] == key:
            return "folder"
        self._alike.append(key)
        if key < self.highest:
            return "unknown"
        self.highest = key
        return "object"
