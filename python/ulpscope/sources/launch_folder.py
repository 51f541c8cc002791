# SPDX-License-Identifier: Apache-2.0
"""The folder that `ulpscope capture` writes into: taken for one capture at a time, replaced
with --force, and at the end every trace in its place. Serves `launch`."""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
from pathlib import Path

TROUBLE = 2
# All that a trace consists of, and the folders that hold one each.
FILES = re.compile(r"trace\.db(-journal|-wal|-shm)?|tensors-\d+\.safetensors(\.part)?")
FOLDERS = re.compile(r"(rank|process)-\d+")


class Refused(Exception):
    """Something is wrong; the text is the one sentence that the user gets."""

    def __init__(self, sentence, code=TROUBLE):
        super().__init__(sentence)
        self.code = code


def read_reports(folder):
    """What the processes of the run said, by rank."""
    found = []
    for path in Path(folder).glob("*.json"):
        with contextlib.suppress(OSError):  # a program may clear temporary files
            found.append(json.loads(path.read_text()))
    return sorted(found, key=lambda r: (r["rank"], r["pid"]))


def is_trace(path):
    """Whether a file is a trace's database, by its first bytes: another may hold its lock."""
    with open(path, "rb") as file:
        head = file.read(72)
    return head[:15] == b"SQLite format 3" and head[68:72] == b"ULPT"


def parts_of(folder):
    """The files of the traces in a folder and the folders among them; raises Refused where it
    holds anything else."""
    files, folders, databases = [], [], []
    for path in sorted(folder.iterdir()):
        real = not path.is_symlink()
        if real and path.is_dir() and FOLDERS.fullmatch(path.name):
            inner = parts_of(path)
            files, folders = files + inner[0], folders + inner[1] + [path]
        elif real and path.is_file() and FILES.fullmatch(path.name):
            files.append(path)
            databases += [path] if path.name == "trace.db" else []
        else:
            raise Refused(f"{folder} holds {path.name}, which is no part of a trace; "
                          "name another folder with -o")  # fmt: skip
    if files and not (databases and is_trace(databases[0])):
        raise Refused(f"{folder} is not a trace of ours; name another folder with -o")
    return files, folders


class Folder:
    """TRACE of one capture; as a context manager it is held against others meanwhile."""

    def __init__(self, path, force=False):
        self.path = path
        self.force = force
        self.made = False
        self.lock = None

    def check(self):
        """Refuses a folder that is in use or cannot be made."""
        trace = self.path
        if trace.exists() and not trace.is_dir():
            raise Refused(f"{trace} is a file; name another folder with -o")
        try:
            if trace.exists() and any(trace.iterdir()):
                self._check_used()
            trace.resolve().parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"{trace} cannot be made ({error.strerror}: {error.filename}); "
                          "name another folder with -o") from None  # fmt: skip
        folder = trace if trace.exists() else trace.resolve().parent
        if not os.access(folder, os.W_OK):
            raise Refused(f"{folder}: no permission to write; name another folder with -o")

    def _check_used(self):
        if self.force:
            parts_of(self.path)
            return
        how = "remove it"
        with contextlib.suppress(Refused):
            parts_of(self.path)
            how = "--force replaces the trace in it"
        raise Refused(f"{self.path} exists and is not empty; {how}, -o names another")

    def __enter__(self):
        """Takes the folder; what it held goes away only here, when the command can be run."""
        try:
            self.path.mkdir()
            self.made = True
        except FileExistsError:
            pass
        self._take()
        if any(self.path.iterdir()):
            if not self.force:
                raise Refused(f"{self.path}: another capture has written into it meanwhile; "
                              "name another folder with -o")  # fmt: skip
            files, folders = parts_of(self.path)
            for file in files:
                file.unlink()
            for folder in folders:
                folder.rmdir()
        return self

    def _take(self):
        self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # some network file systems have no locks
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(self.lock)
                raise Refused(f"{self.path}: another capture is writing into it; name another "
                              "folder with -o") from None  # fmt: skip

    def __exit__(self, *_):
        if self.made:
            with contextlib.suppress(OSError):  # it holds something: that is to stay
                self.path.rmdir()
        os.close(self.lock)

    def settle(self, reports):
        """
        Moves traces that their processes could not place to where they belong: of each rank
        the one of its steps, else the one with the most calls. Returns the reports, each with
        the place of its trace or None.
        """
        loose = [r for r in reports if r["loose"] and r["trace"] and os.path.isdir(r["trace"])]
        world = max((r["world"] for r in loose), default=1)
        for report in loose:
            if report["counts"] is None:  # its process did not live to tell
                report["counts"] = {"calls": calls_in(report["trace"]), "bytes_written": 0}
        kept = {}
        for report in loose:
            if report["world"] == world and worth(report) > worth(kept.get(report["rank"])):
                kept[report["rank"]] = report
        for report in loose:
            if kept.get(report["rank"]) is not report:
                shutil.rmtree(report["trace"], ignore_errors=True)
                report["trace"] = None
        for rank, report in kept.items():
            report["trace"] = self._place(Path(report["trace"]), rank, world)
        return [r for r in reports if not r["loose"] or r["trace"] or (not kept and r["error"])]

    def _place(self, trace, rank, world):
        place = self.path.resolve()
        if world > 1:
            place = place / f"rank-{rank}"
            os.rename(trace, place)
        else:
            for part in sorted(trace.iterdir(), key=lambda p: p.name == "trace.db"):
                os.rename(part, place / part.name)
            trace.rmdir()
        return str(place)


def worth(report):
    """What decides between the traces of one rank; without calls there is none to keep."""
    if report is None or not report["counts"]["calls"]:
        return (False, False, 0)
    return (True, report["finished"] and not report["whole"], report["counts"]["calls"])


def calls_in(path):
    """How many calls a trace holds, 0 where it cannot be read."""
    from .. import _core

    try:
        return len(_core.Trace(path).select())
    except Exception:
        return 0
