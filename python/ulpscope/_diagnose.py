# SPDX-License-Identifier: Apache-2.0
"""The cause of a verdict: right or silent."""


def cause_of(call, verdict):
    """A short clause on why a call does not pass; "" where it is unknown."""
    return ""
