# SPDX-License-Identifier: Apache-2.0
"""The debugging tools of torch_musa by their own names, for any device: docs/how-to/migrate-torch-musa.md.
`utils.compare_tool` needs torch, to compare while a program trains."""
