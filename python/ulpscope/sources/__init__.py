# SPDX-License-Identifier: Apache-2.0
"""Where calls come from: the running program, the launcher, stand-ins, hard cases, other ranks.
May use `calls`."""
