# SPDX-License-Identifier: Apache-2.0
"""
The Python tests, each file in a process of its own, one more at a time than there are
processors (at most four): what one file leaves behind in its process, a device, kernels,
threads, or a crash, no other file meets.

The files that took longest the last time start first. Exit code 1: something failed.
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30 * 60  # seconds for one file: one that hangs is said, and the others go on


running = set()


def run(file):
    """(file, seconds, exit code, output)."""
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", str(file)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        running.add(process)
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # faulthandler says where it stood
            output, _ = process.communicate()
            output += f"\nended after {LIMIT} s\n".encode()
    running.discard(process)
    return file, time.monotonic() - begin, process.returncode, output.decode(errors="replace")


def give_up(pool):
    """Ctrl-C: nothing more is started, and what runs ends with all that it started."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list(running):
        os.killpg(process.pid, signal.SIGKILL)


def main():
    build = Path(os.environ.get("ULPSCOPE_BUILD") or ROOT / "build")
    times = build / "test-times.json"
    try:
        took = json.loads(times.read_text())
    except (OSError, ValueError):
        took = {}
    files = sorted((ROOT / "tests" / "py").glob("test_*.py"))
    files.sort(key=lambda file: took.get(file.name, file.stat().st_size / 1000), reverse=True)
    failed = []
    at_once = min(4, len(os.sched_getaffinity(0)) + 1)  # many wait: for a start, for another process
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        try:
            work = [pool.submit(run, file) for file in files]
            for n, done in enumerate(concurrent.futures.as_completed(work), 1):
                file, seconds, code, output = done.result()
                took[file.name] = round(seconds, 1)
                tell(f"[{n:3}/{len(files)}] {seconds:6.1f} s  {file.name}", code, output)
                if code != 0:
                    failed.append(file.name)
        except KeyboardInterrupt:
            give_up(pool)
            raise
    if build.is_dir():
        times.write_text(json.dumps(took, indent=0, sort_keys=True))
    print(f"{len(files) - len(failed)} of {len(files)} files passed")
    if failed:
        print("failed: " + " ".join(sorted(failed)))
    return 1 if failed else 0


def tell(what, code, output):
    """A line for a file that passed; all that pytest said of one that did not."""
    last = (output.strip().splitlines() or [""])[-1]
    found = re.sub(r" in [\d.]+s.*|=+", "", last).strip()
    print(f"{what}: {found}", flush=True)
    if code != 0:
        how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        print(f"{output}\n{what}: {how}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
