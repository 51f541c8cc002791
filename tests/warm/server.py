# SPDX-License-Identifier: Apache-2.0
"""Processes with torch loaded, for tests that start many: `python server.py SOCKET LOG`.

A fresh process computes for a second and a half before it has torch, two more before it has
torch's compiler, which each optimizer and many a shape of a result ask for, and a quarter of one
for pytest. `python.c` stands for an interpreter: what it is started with comes here, and a fork of
this process runs it, for which these are not loaded, but their imports are quick. Settings that a process reads when it
starts or loads torch (`READ_EARLY`) must be this one's; else a server that has them, SOCKET.1 and
so on, started when they are asked for again, or the interpreter itself.

The processor time of each goes to LOG, with the test file for which it ran, and what it was; of a
start that found no fit process, why.
"""

import array
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib.abc
import importlib.machinery
import io
import multiprocessing.process
import multiprocessing.spawn
import os
import re
import resource
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import warnings
import weakref

ENCODING = sys.stdout.encoding
ENDING = []  # the exit code of a SystemExit
EXIT = os._exit  # a program may be watched for its own
READ_EARLY = re.compile(
    r"MKL_|ONEDNN_|DNNL_|ATEN_|LD_|PYTORCH|KMP_|GOMP|OMP_|MALLOC_|PYTHON|LC_|LANG|GLIBC|NPY_|SYMPY_"
    r"|TORCH_(?!MUSA_|USE_MUSA_|NPU_)|TORCHDYNAMO_|TORCHINDUCTOR_"
)
# ... but for what a fork takes over by itself, or torch reads later.
READ_LATE = {
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
}
HIDDEN = ("torch._dynamo", "torch._inductor", "sympy", "pytest", "_pytest")  # what a plain process does not have
HERE, MOST_SIBLINGS = 1, 8
# Options that a fork can follow: -I, it looks nowhere but where it is installed, -u, and -W with what it says.
FOLLOWED = re.compile("(-[Iu])$|-W(.*)")
LIMITS = [getattr(resource, f"RLIMIT_{name}") for name in ("AS", "DATA", "STACK")]  # of what is loaded
LATE_LIMITS = [getattr(resource, f"RLIMIT_{name}") for name in ("FSIZE", "NOFILE", "CORE", "CPU")]


def early(environ):
    return {k: v for k, v in environ.items() if READ_EARLY.match(k) and k not in READ_LATE}


class Request:
    """What an interpreter was started with."""

    def __init__(self, connection):
        self.connection = connection
        self.pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        words, ancillary, _, _ = connection.recvmsg(4 * 64, socket.CMSG_SPACE(4 * 64))
        self.numbers, self.given = array.array("i", words), array.array("i")
        for _, _, data in ancillary:
            self.given.frombytes(data)
        of = lambda what: open(f"/proc/{self.pid}/{what}", "rb").read().decode(errors="surrogateescape")  # noqa: E731
        self.argv = of("cmdline").split("\0")[:-1]
        self.environ = dict(line.split("=", 1) for line in of("environ").split("\0") if "=" in line)
        self.folder = os.readlink(f"/proc/{self.pid}/cwd")
        self.ignored = int(re.search(r"SigIgn:\s*(\w+)", of("status"))[1], 16)
        self.options, self.warnings, self.words = set(), [], self.argv[1:]  # the words behind options
        while self.words and (found := FOLLOWED.match(self.words[0])):
            self.words.pop(0)
            if found[1]:
                self.options.add(found[1])
            else:
                self.warnings.append(found[2] or (self.words or [""]).pop(0))

    def unfit(self):
        """Why a fork would not be what a fresh process is, apart from what is set; empty where it would."""
        words = self.words
        if not words or words[0] not in ("-c", "-m") and words[0][:1] in ("-", ""):
            return "its options"
        if os.sched_getaffinity(self.pid) != os.sched_getaffinity(0):
            return "its processors"
        if any(resource.prlimit(self.pid, limit) != resource.getrlimit(limit) for limit in LIMITS):
            return "its limits"
        return "its folder is gone" if self.folder.endswith(" (deleted)") else ""

    def what(self):
        """What it runs, in a word: a module, a script, or -c."""
        how, *rest = self.words
        return rest[0] if how == "-m" and rest else os.path.basename(how)

    def file(self):
        """The test file for which it is started."""
        words = " ".join([self.environ.get("PYTEST_CURRENT_TEST", ""), *self.argv])
        return (re.search(r"test_\w+\.py", words) or ["-"])[0]


class Server:
    def __init__(self, path, log):
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(f"{path}~")
        self.listening.listen(64)
        os.rename(f"{path}~", path)
        self.path, self.log_path, self.others = path, log, {}
        # In a fork its number is somebody else's by the time that this is taken apart.
        self.log = open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), "a", buffering=1, closefd=False)
        self.ready = select.poll()
        self.ready.register(self.listening, select.POLLIN)
        self.waits, self.runs = {}, {}  # by descriptor: pidfd to a run, connection to its pidfd

    def serve(self):
        """The request that the process in which this returns is to run; the server never returns."""
        while True:
            for fd, _ in self.ready.poll():
                if fd == self.listening.fileno():
                    connection, _ = self.listening.accept()
                    if (request := self.begin(connection)) is not None:
                        return request
                elif fd in self.waits:
                    self.end(fd)
                elif fd in self.runs:  # who waits was killed
                    pidfd = self.runs.pop(fd)
                    self.ready.unregister(fd)
                    if pidfd in self.waits:
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def begin(self, connection):
        try:
            request = Request(connection)
            unfit = request.unfit()
        except OSError:
            connection.close()
            return None
        answer = 0 if unfit else self.sibling(request)
        if unfit or answer is None:
            other = " ".join(sorted({name for name, _ in early(request.environ).items() ^ early(os.environ).items()}))
            self.log.write(f"{request.file()} 0 cold: {unfit or f'its settings {other}'}\n")
        if answer == HERE and (answer := os.fork()) == 0:
            self.forget()
            return request
        try:
            connection.send(struct.pack("i", answer or 0))
        except OSError:
            pass
        if answer is None or answer <= 0:
            connection.close()
        else:
            pidfd = os.pidfd_open(answer)
            self.waits[pidfd] = answer, connection, (request.file(), request.what())
            self.runs[connection.fileno()] = pidfd
            self.ready.register(pidfd, select.POLLIN)
            self.ready.register(connection, select.POLLHUP)
        for fd in request.given:
            os.close(fd)
        return None

    def sibling(self, request):
        """Which server has the settings of a request: HERE, -1, -2 and so on, or None that is ready; the
        second that asks for the same has one started."""
        wanted = early(request.environ)
        if wanted == early(os.environ):
            return HERE
        key = frozenset(wanted.items())
        n, asked = self.others.setdefault(key, (len(self.others) + 1, 0))
        self.others[key] = n, asked + 1
        if asked == 1 and n <= MOST_SIBLINGS:
            kept = {k: v for k, v in os.environ.items() if k not in early(os.environ)}
            subprocess.Popen(
                [os.environ["ULPSCOPE_COLD"], __file__, f"{self.path}.{n}", self.log_path], env=kept | wanted
            )
        return -n if os.path.exists(f"{self.path}.{n}") else None

    def end(self, pidfd):
        pid, connection, (file, what) = self.waits.pop(pidfd)
        _, status, used = os.wait4(pid, 0)
        self.log.write(f"{file} {used.ru_utime + used.ru_stime:.3f} {what}\n")
        self.ready.unregister(pidfd)
        os.close(pidfd)
        if self.runs.pop(connection.fileno(), None) is not None:
            self.ready.unregister(connection)
        try:
            connection.send(struct.pack("i", status))
        except OSError:
            pass
        connection.close()

    def forget(self):
        """In a fork: nothing of the server is left, but its numbers for others to close."""
        for _, connection, _ in self.waits.values():
            connection.detach()
        self.listening.detach()


class Loaded(importlib.abc.MetaPathFinder):
    """Finds what is loaded already, by name: what waits for its import sees it."""

    def __init__(self, hidden):
        self.hidden, self.specs = hidden, {name: module.__spec__ for name, module in hidden.items()}
        self.coming = False

    def find_spec(self, name, path=None, target=None):
        if name not in self.hidden:
            return None
        spec = self.specs[name]
        if "." not in name:
            found = importlib.machinery.PathFinder.find_spec(name)
            if found is None or found.origin != spec.origin:  # another one comes first
                for modules in (self.hidden, sys.modules):
                    for other in [m for m in modules if m.partition(".")[0] == name]:
                        del modules[other]
                return found
        package = spec.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(name, Shown(self), origin=spec.origin, is_package=package)

    def show(self, name):
        """Torch comes alone, its compiler with all of it and what that imports, others with what is below them."""
        own, top = {name: self.hidden.pop(name)}, name.partition(".")[0]
        if name == "torch" or self.coming:
            return
        self.coming = True
        own |= {m: it for m, it in self.hidden.items() if m != "torch" and top in ("torch", m.partition(".")[0])}
        held = {m: dict(vars(it)) for m, it in own.items()}  # a name in a package may be a module's or what is in it
        for other in own.keys() & self.hidden.keys():
            if other.startswith("torch._dynamo."):  # for one of these others may wait
                continue
            sys.modules[other] = self.hidden.pop(other)
        for other in own:
            importlib.import_module(other)
            package, _, last = other.rpartition(".")
            if package and package not in held:
                setattr(sys.modules[package], last, own[other])
        for package, names in held.items():
            vars(own[package]).update((last, it) for last, it in names.items() if f"{package}.{last}" in own)
        self.coming = False


class Shown(importlib.abc.Loader):
    """Hands out what `Loaded` found, which others may wrap."""

    def __init__(self, loaded):
        self.loaded = loaded

    def create_module(self, spec):
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations[:] = self.loaded.specs[spec.name].submodule_search_locations
        return self.loaded.hidden[spec.name]

    def exec_module(self, module):
        spec = self.loaded.specs[module.__name__]
        vars(module).update(__spec__=spec, __loader__=spec.loader)
        self.loaded.show(module.__name__)


def load():
    """Loads torch, its compiler and pytest; what is to be hidden by name of it: torch and what nobody has unasked."""
    import torch
    import torch._dynamo

    with contextlib.suppress(ImportError):
        import _pytest.config

        for plugin in _pytest.config.default_plugins:
            importlib.import_module(f"_pytest.{plugin}")
    del torch._inductor, torch._dynamo
    return {name: it for name, it in sys.modules.items() if name == "torch" or name.startswith(HIDDEN)}


def take_descriptors(request):
    """Those that it was started with, by their numbers, and no others."""
    import fcntl

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 400) for fd in request.given]
    request.connection.detach()
    os.closerange(0, 400)
    for number, fd in zip(request.numbers, high):
        os.dup2(fd, number)
        os.close(fd)


def stream(number, name, mode, errors, at_once=False):
    try:
        raw = io.FileIO(number, mode, closefd=False)
    except OSError:
        return None
    raw.name = name
    buffered = io.BufferedReader(raw) if mode == "r" else raw if at_once else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffered, encoding=ENCODING, errors=errors, write_through=at_once, line_buffering=number == 2 or raw.isatty()
    )


def parent_of(stands, me, known):
    """The parent's number, which is that of who stands for this process; a fork has its own."""
    if os.getpid() != me:
        return known()
    try:
        with open(f"/proc/{stands}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 1


def become(request, path, hidden):
    """This process is from now on what was asked for."""
    take_descriptors(request)
    os.setsid()
    os.chdir(request.folder)
    for limit in LATE_LIMITS:
        resource.setrlimit(limit, resource.prlimit(request.pid, limit))
    for name in set(os.environ) - set(request.environ):
        del os.environ[name]
    os.environ.update(request.environ)
    os.getppid = functools.partial(parent_of, request.pid, os.getpid(), os.getppid)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request.ignored >> 1 & 1 else signal.default_int_handler)
    at_once = "-u" in request.options or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin, sys.stdout, sys.stderr = streams = (
        stream(0, "<stdin>", "r", "strict"),
        stream(1, "<stdout>", "w", "strict", at_once),
        stream(2, "<stderr>", "w", "backslashreplace", at_once),
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams
    sys.executable, sys.orig_argv = os.path.abspath(shutil.which(request.argv[0]) or request.argv[0]), request.argv
    multiprocessing.process.ORIGINAL_DIR = request.folder
    multiprocessing.spawn.set_executable(sys.executable)
    sys.warnoptions.extend(request.warnings)
    warnings._processoptions(request.warnings)
    own = "" if "-I" in request.options else os.environ.get("PYTHONPATH", "")
    sys.path[:] = [p for p in own.split(os.pathsep) if p] + path
    sys.modules.pop("sitecustomize", None)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    for name in hidden:
        del sys.modules[name]
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        hidden["torch"].set_num_threads(int(threads))
    sys.meta_path.insert(0, Loaded(hidden))
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        pass
    return main


def run(request, main):
    how, *rest = request.words
    if how == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(rest[0])
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[:0] = [] if "-I" in request.options else [""]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = [how, *rest]
        sys.path.insert(0, os.path.dirname(os.path.realpath(how)))
        with open(how, "rb") as file:
            code = compile(file.read(), how, "exec")
        main.__file__ = how
        exec(code, main.__dict__)


def told(problem):
    """An exception that ends it, without the frames of this file."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
        trace = trace.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(problem), problem, trace
    sys.excepthook(type(problem), problem.with_traceback(trace), trace)


def flush():
    """Everything that Python would have written at its end."""
    for file in [f for f in gc.get_objects() if type(f) in (io.TextIOWrapper, io.BufferedWriter)]:
        try:
            file.flush()
        except (OSError, ValueError):  # closed, or nobody reads it
            pass
    ctypes.CDLL(None).fflush(None)


def last():
    """The last handler at the end of a run that left by SystemExit, of which Python took care."""
    if ENDING:
        flush()
        EXIT(ENDING[0])


def leave(code):
    """Ends as Python ends, but for taking apart what is loaded: that costs more than to load it.
    None: as one that was interrupted."""
    threading._shutdown()
    atexit._run_exitfuncs()
    flush()
    if code is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    EXIT(code)


def main():
    atexit.register(last)  # before torch has handlers
    hidden = load()
    path = [p for p in sys.path if p.startswith((sys.prefix, sys.base_prefix))]
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with who started it
    for finalizer in list(weakref.finalize._registry):  # torch's: to take its operators apart costs most of an end
        finalizer.atexit = False
    server = Server(*sys.argv[1:3])
    gc.collect()
    gc.freeze()
    request = server.serve()
    main = become(request, path, hidden)
    code = 0
    try:
        run(request, main)
    except SystemExit as end:
        ENDING.append((end.code or 0) & 255 if end.code is None or isinstance(end.code, int) else 1)
        raise
    except BaseException as problem:
        told(problem)
        code = None if isinstance(problem, KeyboardInterrupt) else 1
    leave(code)


if __name__ == "__main__":
    main()
