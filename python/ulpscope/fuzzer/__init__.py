# SPDX-License-Identifier: Apache-2.0
"""Calls that nobody made: drawn from examples, from specifications, from tests in plain torch text; relations
between calls, programs of several, and how small a failure gets. May use every other room but `compat`."""
