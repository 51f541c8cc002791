# SPDX-License-Identifier: Apache-2.0
"""How much a watch sees: faults that are known, planted into trainings that are clean otherwise.
`./run bench watch`; docs/reference/watch-reference.md has its table."""
