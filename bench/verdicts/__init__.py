# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the verdict: correct kernels and planted faults, judged through the
public `ulpscope.judge_call` alone. `./run bench verdicts --help`; docs/background/benchmark.md."""
