# SPDX-License-Identifier: Apache-2.0
"""What runs inside somebody's program: recording, hooks, modes that compute otherwise, NaN, time, the glue.
May use `calls`; may not hurt its host."""
