# SPDX-License-Identifier: Apache-2.0
"""Trains on cuda:0."""

from __future__ import annotations

import torch

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
