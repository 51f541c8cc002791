# SPDX-License-Identifier: Apache-2.0
"""Elements that go free by what only further runs of a call show: counted as a case counts its own.
The list of excuses is C (`USC_EXCUSE_LIST`, docs/excuses.md). Needs nothing of torch."""

from .. import _core


def excuse(finding, code, count):
    """
    Notes on a Finding that `count` of its elements went free by an excuse: in the details
    `excused` (how many in all), `excuse` (codes) and `excuses` (code -> how many), and as a
    note where these are more than a few.
    """
    if not count:
        return finding
    found = finding.details.setdefault("excuses", {})
    found[code] = found.get(code, 0) + int(count)
    finding.details["excused"] = sum(found.values())
    finding.details["excuse"] = ",".join(sorted(found))
    note = _core.excuse_note(code, found[code], finding.n)
    if note:
        finding.notes.append(note)
    return finding
