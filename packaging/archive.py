# SPDX-License-Identifier: Apache-2.0
"""Archives whose bytes depend on what is in them alone: names in order, one date, no owner."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version() -> str:
    header = (ROOT / "include/ulpscope/version.h").read_text()
    return ".".join(
        line.split()[2]
        for line in header.splitlines()
        if line.startswith("#define USC_VERSION_M")
        and line.split()[2].isdigit()
        or line.startswith("#define USC_VERSION_PATCH")
    )


def epoch() -> int:
    """When the commit was made: the date of all files."""
    done = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(done.stdout.strip() or 1700000000)


def wheel(path: Path, files: dict[str, bytes], metadata: str, tag: str) -> None:
    """A wheel of files by their names in it."""
    info = "-".join(path.name.split("-")[:2]) + ".dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: ulpscope\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}"
        for name, data in sorted(files.items())
    ]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, time.gmtime(epoch())[:6])
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)


def tar(path: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """A .tar.gz of (bytes, mode) by name."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (data, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, epoch()
            archive.addfile(entry, io.BytesIO(data))
    with open(path, "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as out:
        out.write(raw.getvalue())
