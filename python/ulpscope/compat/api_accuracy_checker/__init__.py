# SPDX-License-Identifier: Apache-2.0
"""The Ascend precheck of 2023, whose document can be followed word by word: docs/how-to/migrate-msprobe.md.
Needs no torch; `dump` does."""
