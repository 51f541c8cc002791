# SPDX-License-Identifier: Apache-2.0
"""What every test needs of its surroundings."""

import signal

from ulpscope.causes import host

# What a test asks for is the name, and not how busy the machine is.
host.SECONDS = 20.0

# A shell that runs the tests in the background has interrupts ignored, and all children
# would inherit that; some tests interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
