# SPDX-License-Identifier: Apache-2.0
"""The watch over a run of weeks: what is read in each step, across ranks, and what of it is told. May use
`calls` and `program`; the detectors are C."""
