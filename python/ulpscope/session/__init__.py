# SPDX-License-Identifier: Apache-2.0
"""One call, one verdict, and what is made of that: checks, packs, tests of kernels, scripts.
May use the rooms below it and `program`."""
