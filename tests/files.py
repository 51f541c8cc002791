# SPDX-License-Identifier: Apache-2.0
"""
The Python tests, each file in a process of its own, one more at a time than there are
processors (at most four): what one file leaves behind in its process, a device, kernels,
threads, or a crash, no other file meets. These processes, and those that tests start, are
forked with torch loaded (tests/warm); a file with a line `COLD = "why"` starts fresh ones. No plugin of pytest's is
loaded that no test asks for: each takes longer to load than some files take.

The files that took longest the last time start first; with names of files only those run. What
each said lies in BUILD/test-output, what each cost in BUILD/test-costs.json, which `--costs` lists:
processor time, of pytest with what it computes and starts itself, and of the warm processes by
what they ran; how many starts were cold, and why. PYTEST_ADDOPTS has more words for pytest, e.g. --durations=9.
Exit code 1: something failed.
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30 * 60  # seconds for one file: one that hangs is said, and the others go on


running = set()
for name in (
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
):  # ranks' prints would mix; all would be compiled at each start
    os.environ.pop(name, None)


class Warm:
    """The server of processes with torch loaded, and the processor time that they took."""

    def __init__(self, build, folder):
        self.python, self.log, self.server = build / "warm" / "python", folder / "log", None
        self.of_files = {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "ULPSCOPE_TEST_PLACES": str(build.resolve() / "test-places"),
        }
        if not self.python.exists():  # a build without tests
            return
        self.settings = {
            "ULPSCOPE_WARM": str(folder / "socket"),
            "ULPSCOPE_COLD": sys.executable,
            "ULPSCOPE_PYTHON": str(self.python),
            "PATH": os.pathsep.join([str(self.python.parent), os.environ["PATH"]]),
        }
        self.server = subprocess.Popen(
            [sys.executable, ROOT / "tests/warm/server.py", folder / "socket", self.log],
            start_new_session=True,
            env={**os.environ, **self.settings},
        )
        while not (folder / "socket").exists():
            if self.server.poll() is not None:
                sys.exit("tests/warm/server.py ended")
            time.sleep(0.05)

    def start(self, file):
        """pytest on a file."""
        warm = self.server and not re.search("^COLD = ", file.read_text(), re.M)
        return subprocess.Popen(
            [self.python if warm else sys.executable, "-m", "pytest", file],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **self.of_files, **(self.settings if warm else {})},
        )

    def used(self, file):
        """What ran for a test file -> how often, seconds of the processor."""
        used = {}
        for line in self.log.read_text().splitlines() if self.server else ():
            name, seconds, what = line.split(maxsplit=2)
            if name == file:
                n, before = used.get(what, (0, 0))
                used[what] = n + 1, round(before + float(seconds), 3)
        return used

    def end(self):
        if self.server:
            self.server.kill()


def run(warm, file):
    """(file, seconds, those of the processor without what was warm, exit code, output)."""
    begin = time.monotonic()
    process = warm.start(file)
    running.add(process)
    late = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGABRT))  # faulthandler says where it stood
    late.start()
    output = process.stdout.read()
    late.cancel()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    running.discard(process)
    seconds = time.monotonic() - begin
    if seconds > LIMIT:
        output += f"\nended after {LIMIT} s\n".encode()
    return file, seconds, used.ru_utime + used.ru_stime, process.returncode, output.decode(errors="replace")


def give_up(pool):
    """Ctrl-C: nothing more is started, and what runs ends with all that it started."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list(running):
        os.killpg(process.pid, signal.SIGKILL)


def kept(path):
    """What was kept of runs before; empty where nothing was."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def list_costs(costs):
    """The files by what they cost, and what that went to."""
    whole = lambda parts: sum(seconds for _, seconds in parts.values())  # noqa: E731
    total = sum(map(whole, costs.values()))
    print(f"{total:.0f} s of a processor in {len(costs)} files")
    for file, parts in sorted(costs.items(), key=lambda item: -whole(item[1])):
        said = sorted(parts.items(), key=lambda part: -part[1][1])
        often = lambda n: f" x{n}" if n > 1 else ""  # noqa: E731
        words = [f"{seconds:.1f} {what}{often(n)}" for what, (n, seconds) in said if seconds >= 0.05]
        words += [f"{what} x{n}" for what, (n, _) in said if what.startswith("cold: ")]
        print(f"{whole(parts):7.1f} s {100 * whole(parts) / max(total, 1e-9):5.1f} %  {file}: {', '.join(words)}")


def main():
    build = Path(os.environ.get("ULPSCOPE_BUILD") or ROOT / "build")
    times, costs = build / "test-times.json", build / "test-costs.json"
    if sys.argv[1:] == ["--costs"]:
        list_costs(kept(costs))
        return 0
    took, cost = kept(times), kept(costs)
    files = [Path(name).resolve() for name in sys.argv[1:]] or sorted((ROOT / "tests" / "py").glob("test_*.py"))
    files.sort(key=lambda file: took.get(file.name, file.stat().st_size / 1000), reverse=True)
    with tempfile.TemporaryDirectory(prefix="ulpscope-warm-") as folder:
        warm = Warm(build, Path(folder))
        try:
            failed = all_of(files, warm, took, cost, build)
        finally:
            warm.end()
    print(f"{len(files) - len(failed)} of {len(files)} files passed")
    if failed:
        print("failed: " + " ".join(sorted(failed)))
    return 1 if failed else 0


def keep(build, took, cost):
    """After each file: a run that is ended has measured, too."""
    if build.is_dir():
        (build / "test-times.json").write_text(json.dumps(took, indent=0, sort_keys=True))
        (build / "test-costs.json").write_text(json.dumps(cost, sort_keys=True))


def all_of(files, warm, took, cost, build):
    """Runs them; the names of those that failed. What each said is kept in a folder."""
    said = build / "test-output"
    said.mkdir(parents=True, exist_ok=True)
    begin, failed, total = time.monotonic(), [], 0
    at_once = min(4, len(os.sched_getaffinity(0)) + 1)  # many wait: for a start, for another process
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        try:
            work = [pool.submit(run, warm, file) for file in files]
            for n, done in enumerate(concurrent.futures.as_completed(work), 1):
                file, seconds, used, code, output = done.result()
                took[file.name] = round(seconds, 1)
                cost[file.name] = warm.used(file.name) | {"pytest, cold": (1, round(used, 3))}
                used = sum(spent for _, spent in cost[file.name].values())
                total += used
                (said / f"{file.stem}.txt").write_text(output)
                keep(build, took, cost)
                tell(f"[{n:3}/{len(files)}] {seconds:6.1f} s, {used:6.1f} s of a processor  {file.name}", code, output)
                if code != 0:
                    failed.append(file.name)
        except KeyboardInterrupt:
            give_up(pool)
            raise
    print(f"{time.monotonic() - begin:.0f} s, {total:.0f} s of a processor")
    return failed


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
