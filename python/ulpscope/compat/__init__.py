# SPDX-License-Identifier: Apache-2.0
"""Other tools by their own names: what their documents say works on any device. Needs no torch."""
