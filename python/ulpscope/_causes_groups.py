# SPDX-License-Identifier: Apache-2.0
"""What is known of the causes of groups of findings that are alike. The coordinator of a check
keeps it for all of its workers, so that a group costs one search, not one for each of them.
Needs no torch. Neighbours: `_causes_host` (asks), `_crew` (carries the questions)."""

SEARCHES = 3  # after so many different causes a group is left alone


class Known:
    """Causes by group, and who searches for which."""

    def __init__(self):
        self.causes, self.searches = {}, {}
        self.busy, self.waiting = {}, {}  # group -> who searches; [(who, heard)] that wait for it

    def ask(self, who, group, heard):
        """
        (causes that may be this one's as well, whether to search) for somebody who has heard so
        many of them; None where somebody else searches, then `found` or `gone` has the answer.
        """
        new = self.causes.get(group, [])[heard:]
        if new or self.searches.get(group, 0) >= SEARCHES:
            return new, False
        if group in self.busy:
            self.waiting.setdefault(group, []).append((who, heard))
            return None
        self.busy[group] = who
        self.searches[group] = self.searches.get(group, 0) + 1
        return [], True

    def found(self, group, cause):
        """A search ended, "" where it found nothing: (who, answer) of those who waited."""
        self.busy.pop(group, None)
        if cause:
            self.causes.setdefault(group, []).append(cause)
        return self._woken(group)

    def gone(self, who):
        """Somebody asks no more: (who, answer) of those who waited."""
        for group, waiting in self.waiting.items():
            self.waiting[group] = [w for w in waiting if w[0] is not who]
        groups = [g for g, searcher in self.busy.items() if searcher is who]
        return [answer for g in groups for answer in self.found(g, "")]

    def _woken(self, group):
        waiting = self.waiting.pop(group, [])
        answers = [(who, self.ask(who, group, heard)) for who, heard in waiting]
        return [(who, answer) for who, answer in answers if answer is not None]


class Own:
    """The same for one program that shares with nobody."""

    def __init__(self):
        self.known = Known()

    def ask(self, group, heard):
        """As `Known.ask`, without waiting."""
        return self.known.ask(self, group, heard) or ([], True)

    def found(self, group, cause):
        """As `Known.found`."""
        self.known.found(group, cause)
