# SPDX-License-Identifier: Apache-2.0
"""What every test needs of its surroundings."""

import signal

# A shell that runs the tests in the background has interrupts ignored, and all children
# would inherit that; some tests interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
