# SPDX-License-Identifier: Apache-2.0
"""What `ulpscope env` (cli/cmd_env.c) cannot know without Python: versions, torch's flags and
devices, digests of files. Lines of name, tab and value behind a mark, for a site may print.

Needs of torch: its flags, each asked by itself, for no version of it has them all."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

MARK = "ulpscope env begins here"
PACKAGES = """torch numpy torch_npu torch-npu torch_musa torch-mlu intel-extension-for-pytorch torchvision
triton transformers accelerate deepspeed megatron-core apex flash-attn transformer-engine xformers
bitsandbytes peft safetensors datasets tokenizers lightning numba scipy""".split()
# Paths below torch, of values or of functions without arguments.
FLAGS = """get_float32_matmul_precision are_deterministic_algorithms_enabled
is_deterministic_algorithms_warn_only_enabled get_deterministic_debug_mode get_default_dtype
get_num_threads get_num_interop_threads is_autocast_enabled is_autocast_cpu_enabled
get_autocast_gpu_dtype get_autocast_cpu_dtype is_autocast_cache_enabled is_grad_enabled
utils.deterministic.fill_uninitialized_memory
backends.cuda.matmul.allow_tf32 backends.cuda.matmul.fp32_precision
backends.cuda.matmul.allow_fp16_reduced_precision_reduction
backends.cuda.matmul.allow_bf16_reduced_precision_reduction
backends.cuda.matmul.allow_fp16_accumulation
backends.cuda.flash_sdp_enabled backends.cuda.mem_efficient_sdp_enabled
backends.cuda.math_sdp_enabled backends.cuda.cudnn_sdp_enabled
backends.cudnn.enabled backends.cudnn.allow_tf32 backends.cudnn.benchmark backends.cudnn.deterministic
backends.mkldnn.enabled backends.mkldnn.deterministic backends.mkldnn.allow_tf32
backends.mkldnn.matmul.fp32_precision backends.sim.matmul.fp32_precision backends.sim.conv.fp32_precision
sim.random sim.get_guard sim.launch_blocking backends.opt_einsum.enabled backends.opt_einsum.strategy
npu.matmul.allow_hf32 npu.conv.allow_hf32 _C._get_cublas_allow_tf32""".split()


def tell(name: str, value: object) -> None:
    """A line; what would break it is replaced."""
    print(f"{name}\t{' '.join(str(value).split())}")


def versions() -> None:
    tell("version.python", platform.python_version())
    for name in PACKAGES:
        try:
            tell(f"version.{name}", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue


def flags(torch: ModuleType) -> None:
    for path in FLAGS:
        value = torch
        try:
            for part in path.split("."):
                value = getattr(value, part)
            tell(f"flag.{path}", value() if callable(value) else value)
        except (AttributeError, RuntimeError, TypeError, AssertionError):
            continue


def devices(torch: ModuleType) -> None:
    for name in ("cuda", "hip", "cann", "musa"):
        if getattr(torch.version, name, None):
            tell(f"version.{name}", getattr(torch.version, name))
    if torch.backends.cudnn.is_available():
        tell("version.cudnn", torch.backends.cudnn.version())
    tell("hardware.cpu_capability", torch.backends.cpu.get_cpu_capability())
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not accelerator.is_available():
        return
    kind = accelerator.current_accelerator().type
    module = getattr(torch, kind)
    for i in range(accelerator.device_count()):
        name = getattr(module, "get_device_name", lambda i: kind)(i)
        tell(f"hardware.{kind}:{i}", name)


def digest(path: Path) -> str:
    """SHA-256, as sha256sum gives it."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def files(paths: Iterable[str]) -> None:
    for given in map(Path, paths):
        inner = sorted(p for p in given.rglob("*") if p.is_file()) if given.is_dir() else [given]
        for path in inner:
            tell(f"file.{path}", f"{path.stat().st_size} bytes, sha256 {digest(path)}")


def variables(families: tuple[str, ...]) -> None:
    """Those of this process that begin so; the program hides secrets among them."""
    for name, value in os.environ.items():
        if name.startswith(families) and name != "ULPSCOPE_ENV":
            tell(f"variable.{name}", value)


def start(reports: str) -> None:
    """In a process of `ulpscope env -- COMMAND`: tells into a file there as the process ends."""
    rank, pid = int(os.environ.get("RANK") or 0), os.getpid()
    path = Path(reports, f"facts-{rank:06}-{pid:010}")

    def end() -> None:
        import torch

        if os.getpid() != pid:  # a fork of it
            return
        part = path.with_name(f"part-{pid}")
        try:
            families = tuple(Path(reports, "families").read_text().split())
            with part.open("w") as file, contextlib.redirect_stdout(file):
                versions()
                variables(families)
                flags(torch)
                devices(torch)
            part.rename(path)
        except OSError:  # the one who asked is gone
            pass

    atexit.register(end)


def main() -> None:
    print(MARK)
    versions()
    try:
        import torch
    except Exception as error:
        tell("version.torch", f"cannot be imported: {type(error).__name__}: {error}")
    else:
        flags(torch)
        devices(torch)
    try:
        files(sys.argv[1:])
    except OSError as error:
        tell("error", error)


if __name__ == "__main__":
    main()
