# SPDX-License-Identifier: Apache-2.0
"""What is said of a device's answer. The rule itself is C (`_core.Case`, docs/background/case.md): here its
questions are answered. May use `calls` and `executors`."""
