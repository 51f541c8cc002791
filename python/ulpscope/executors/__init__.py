# SPDX-License-Identifier: Apache-2.0
"""What runs a call: the device under test, a compiler behind it, the CPU in other precisions.
May use `calls`; decides nothing."""
