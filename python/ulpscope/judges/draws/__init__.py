# SPDX-License-Identifier: Apache-2.0
"""Random operators, judged by what every honest draw has in common. A part of `judges`."""
