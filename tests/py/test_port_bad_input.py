# SPDX-License-Identifier: Apache-2.0
"""ulpscope port on what nobody should give it: a sentence and exit code 2, or a place in the list; never a
half-written output."""

import os
import resource
import signal
import subprocess
import time

import pytest


def port(*words, **more):
    return subprocess.run(
        ["ulpscope", "port", *map(str, words)],
        capture_output=True,
        text=True,
        errors="replace",
        **more,
    )


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.cu").write_text("cudaFree(p);\n")
    return folder


def refuses(done, sentence):
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def left(done, sentence):
    assert done.returncode == 1 and sentence in done.stdout, done.stdout


def test_a_source_that_is_missing_empty_or_unreadable(tmp_path):
    refuses(port(tmp_path / "none", "--to", "musa"), "none: No such file")
    (tmp_path / "empty").mkdir()
    refuses(port(tmp_path / "empty", "--to", "musa"), "is empty: nothing to port")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("torch.cuda.is_available()")
    for what in ("notes", "notes/notes.txt"):
        refuses(port(tmp_path / what, "--to", "musa"), "no source to port")
    (tmp_path / "file").write_text("")
    refuses(port(tmp_path / "file" / "x.cu", "--to", "musa"), "Not a directory")
    if os.geteuid() != 0:
        (tmp_path / "empty").chmod(0)
        refuses(port(tmp_path / "empty", "--to", "musa"), "Permission denied")


def test_links_out_of_the_tree_in_a_circle_and_to_nothing(source):
    for name, to in (("out", "/etc"), ("circle", "circle"), ("nothing", "gone"), ("up", "..")):
        (source / name).symlink_to(to)
    done = port(source, "--to", "musa")
    for sentence in (
        "out:1: a link out of the source",
        "circle:1: a link in a circle",
        "nothing:1: a link to nothing",
        "up:1: a link out of the source",
    ):
        left(done, sentence)
    assert os.listdir(f"{source}_musa") == ["a.mu"]


def test_outputs_in_the_source_and_not_empty(source, tmp_path):
    refuses(port(source, "--to", "musa", "-o", source / "out"), "lies in the source")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/x").write_text("mine")
    refuses(port(source, "--to", "musa", "-o", tmp_path / "taken"), "is there already")
    assert os.listdir(tmp_path / "taken") == ["x"]


def test_no_room(source, tmp_path):
    (source / "b.cu").write_text("cudaFree(p);\n" * 2000)

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    refuses(port(source, "--to", "musa", preexec_fn=little_room), "File too large")
    refuses(port(source, "--to", "musa", "--in-place", preexec_fn=little_room), "File too large")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src"]
    assert sorted(p.name for p in source.iterdir()) == ["a.cu", "b.cu"]


def test_in_place_with_changes_that_are_not_committed(source):
    git = ["git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "a.cu"], ["commit", "-qm", "x"]):
        subprocess.run(git + words, check=True, capture_output=True)
    (source / "a.cu").write_text("cudaFree(q);\n")
    refuses(port(source, "--to", "musa", "--in-place"), "changes that are not committed")
    assert (source / "a.cu").read_text() == "cudaFree(q);\n"
    assert port(source, "--to", "musa", "--in-place", "--force").returncode == 0
    assert (source / "a.mu").read_text() == "musaFree(q);\n"
    assert port(source, "--revert").returncode == 0 and (source / "a.cu").read_text() == "cudaFree(q);\n"


@pytest.mark.parametrize(
    "name, data, sentence",
    [
        ("x.cu", b"cudaFree(p);\0", "binary"),
        ("x.py", "x.cuda()".encode("utf-16"), "UTF-16"),
        ("x.py", b"x = '''\nx.cuda()", "unended"),
        ("x.cu", b'f("x\ncudaFree(p);', "unended"),
        ("x.cu", b"/* cudaFree(p);", "unended"),
    ],
)
def test_what_is_left_as_it_is(source, name, data, sentence):
    (source / name).write_bytes(data)
    left(port(source, "--to", "musa"), sentence)
    out = source.with_name("src_musa") / name.replace(".cu", ".mu")
    assert out.read_bytes() == data


def test_a_file_of_more_than_64_mib(source):
    with open(source / "big.cu", "wb") as file:
        file.truncate((64 << 20) + 1)
    left(port(source, "--to", "musa", "--dry-run"), "big.cu:1: more than 64 MiB")


@pytest.mark.parametrize(
    "name, text, ported",
    [
        ("old.py", 'import torch\nprint "cuda", x.cuda()\nexec "x"\n', "x.musa()"),
        ("deep.py", "y = " + "(" * 10000 + "x.cuda()" + ")" * 10000 + "\n", "x.musa()"),
        ("deep.cu", "int y = " + "(" * 10000 + "cudaFree(p)" + ")" * 10000 + ";\n", "musaFree(p)"),
        ("open.cu", "#define F(x) { if (x) cudaFree(\nF(1) p); }}}\n", "musaFree("),
        ("f.py", "f'" + '{f"' * 60 + "x", None),
    ],
)
def test_old_deep_and_unbalanced_code(source, name, text, ported):
    (source / name).write_text(text)
    done = port(source, "--to", "musa", timeout=20)
    assert done.returncode in (0, 1)
    out = (source.with_name("src_musa") / name.replace(".cu", ".mu")).read_text()
    assert (ported in out) if ported else out == text


def test_a_port_that_is_killed_leaves_the_whole_or_nothing(source, tmp_path):
    for i in range(300):
        (source / f"f{i}.cu").write_text("cudaFree(p);\n" * 50)
    before = {p.name: p.read_bytes() for p in source.iterdir()}
    seen = set()
    for k in range(12):
        running = subprocess.Popen(["ulpscope", "port", source, "--to", "musa"], stdout=subprocess.DEVNULL)
        time.sleep(0.004 * k)
        running.kill()
        running.wait()
        out = tmp_path / "src_musa"
        seen.add(out.exists())
        if out.exists():
            assert len(os.listdir(out)) == 301
            subprocess.run(["rm", "-r", out], check=True)
        running = subprocess.Popen(
            ["ulpscope", "port", source, "--to", "musa", "--in-place"], stdout=subprocess.DEVNULL
        )
        time.sleep(0.004 * k)
        running.kill()
        running.wait()
        port(source, "--revert")
        assert {p.name: p.read_bytes() for p in source.iterdir() if not p.name.startswith(".ulpscope-port")} == before
    assert False in seen  # it was killed in the middle, too


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--map", "{dir}/none.json"], "none.json: No such file"),
        (["--map", "{dir}/bad.json"], "line 2 of the map"),
        (["--no-default-map"], "--no-default-map leaves no names"),
        (["--in-place", "-o", "x"], "say two things"),
        (["--json", "--report", "html"], "say two things"),
        (["--report", "pdf"], "one of html is needed"),
    ],
)
def test_options_that_do_not_fit(source, tmp_path, words, sentence):
    (tmp_path / "bad.json").write_text('{\n"a" "b"}')
    refuses(port(source, "--to", "musa", *[w.format(dir=tmp_path) for w in words]), sentence)
