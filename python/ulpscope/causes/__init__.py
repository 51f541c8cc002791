# SPDX-License-Identifier: Apache-2.0
"""Which mistake explains a wrong answer. Runs in a process of its own; never changes a verdict.
May use `calls`, `executors` and `judges`."""
