# SPDX-License-Identifier: Apache-2.0
"""`compare_tool`, where programs import it from. Needs no torch."""
