# SPDX-License-Identifier: Apache-2.0
"""A call and its arguments: rebuilt from a trace or made of a callable, bound, taken apart.
Uses nothing of the other rooms."""
