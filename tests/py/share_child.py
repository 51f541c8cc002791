# SPDX-License-Identifier: Apache-2.0
"""The other process of test_sim_share.py: does what it is told with the tensors that come."""

from __future__ import annotations

import os

import torch


def serve(orders, answers):
    kept = None
    while True:
        order, tensor = orders.get()
        if order == "end":
            return
        if order == "die":
            os._exit(3)
        if order == "keep":
            kept = tensor
        if order == "tell-kept":
            tensor = kept
        if order == "add-one":
            tensor.detach().add_(1)
            torch.sim.synchronize()
        if order == "send-back":
            answers.put(tensor)
            continue
        dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        answers.put((dense.cpu().tolist(), str(tensor.device), type(tensor).__name__, tensor.requires_grad))
        del tensor, dense


def send_and_leave(connection, wait):
    """Sends a tensor and ends, at once or when told."""
    import ulpscope.sim  # noqa: F401

    connection.send(torch.full((3,), 5.0, device="sim"))
    if wait:
        connection.recv()
    os._exit(0)
