# SPDX-License-Identifier: Apache-2.0
"""The tools of ditorch by their own names, for any device: docs/how-to/migrate-ditorch.md. `import
ulpscope.compat.ditorch` changes nothing of torch; `op_tools` needs torch, to work while a program
trains."""
