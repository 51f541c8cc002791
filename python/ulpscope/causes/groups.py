# SPDX-License-Identifier: Apache-2.0
"""What is known of the causes of groups of findings that are alike, so that a group costs one
search. The coordinator of a check keeps it for all of its workers (src/run/known.c); this is
the same for one program that shares with nobody. Neighbour: `host`, which asks."""

from __future__ import annotations

SEARCHES = 3  # after so many different causes a group is left alone


class Own:
    """Causes by group, and how often was searched for them."""

    def __init__(self) -> None:
        self.causes: dict[str, list[str]] = {}
        self.searches: dict[str, int] = {}

    def ask(self, group: str, heard: int) -> tuple[list[str], bool]:
        """(causes that may be this one's as well, whether to search) for a finding of which so
        many causes were heard."""
        new = self.causes.get(group, [])[heard:]
        if new or self.searches.get(group, 0) >= SEARCHES:
            return new, False
        self.searches[group] = self.searches.get(group, 0) + 1
        return [], True

    def found(self, group: str, cause: str) -> None:
        """A search ended, "" where it found nothing."""
        if cause:
            self.causes.setdefault(group, []).append(cause)
