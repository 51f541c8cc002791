# SPDX-License-Identifier: Apache-2.0
"""JUnit XML as an independent parser reads it: valid against the usual schema whatever the
names are, and what the report says."""

from __future__ import annotations

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))

# The schema of Ant's JUnit task, which Jenkins, GitLab and others read: for each element
# its attributes (with the form of their values) and its children in order.
TEXT, COUNT, SECONDS = r"[\s\S]*", r"\d+", r"\d+(\.\d+)?"
SCHEMA = {
    "testsuites": ({}, ["testsuite*"]),
    "testsuite": (
        {
            "id": COUNT,
            "package": TEXT,
            "name": TEXT,
            "hostname": TEXT,
            "tests": COUNT,
            "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
            "failures": COUNT,
            "errors": COUNT,
            "skipped": COUNT,
            "time": SECONDS,
        },
        ["properties", "testcase*", "system-out", "system-err"],
    ),
    "properties": ({}, ["property*"]),
    "property": ({"name": r".+", "value": TEXT}, []),
    "testcase": ({"name": TEXT, "classname": TEXT, "time": SECONDS}, ["failure?", "skipped?"]),
    "failure": ({"type": TEXT, "message": TEXT}, []),
    "skipped": ({"message": TEXT}, []),
    "system-out": ({}, []),
    "system-err": ({}, []),
}


def offences(element) -> list[str]:
    """What the schema does not allow in an element and below it."""
    if element.tag not in SCHEMA:
        return [f"element {element.tag}"]
    attributes, children = SCHEMA[element.tag]
    found = []
    for name, form in attributes.items():
        if not re.fullmatch(form, element.get(name, "\0")):
            found.append(f"{element.tag} {name}={element.get(name)!r}")
    found += [f"{element.tag} has {name}" for name in element.keys() if name not in attributes]
    order = "".join(f"{child.tag} " for child in element)
    form = "".join(f"({c.rstrip('*?')} ){c[len(c.rstrip('*?')) :]}" for c in children)
    if not re.fullmatch(form, order):
        found.append(f"{element.tag} holds {order}")
    return found + [o for child in element for o in offences(child)]


@pytest.fixture(scope="module")
def junit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("junit")
    subprocess.run([BUILD / "tests" / "test_report_files", "sample", folder / "sample"], check=True)
    path = folder / "junit.xml"
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "report", folder / "sample", "--no-files", "--junit", path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    return path.read_text()


def test_junit_is_valid(junit):
    assert offences(ElementTree.fromstring(junit)) == []


def test_the_schema_notices_what_is_wrong(junit):
    for change in [(' time="', ' tmie="'), ("<failure", "<failed"), ('tests="', 'tests="x'), ("<system-out/>", "")]:
        broken = (
            junit.replace(*change).replace("</failure", "</" + change[1].strip('<= "'))
            if change[0] == "<failure"
            else junit.replace(*change)
        )
        assert offences(ElementTree.fromstring(broken)), change


def test_counts_are_those_of_the_cases(junit):
    suite = ElementTree.fromstring(junit)[0]
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) == 17
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == 13
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped")) == 3
    names = [(c.get("classname"), c.get("name")) for c in cases]
    assert len(set(names)) == len(names)


def test_names_come_back_as_they_are_but_for_what_xml_cannot_say(junit):
    """The sample has a name with markup, quotes and an escape character."""
    names = [c.get("classname") for c in ElementTree.fromstring(junit)[0].findall("testcase")]
    assert '</script><b>"&\ufffd[31m' in names
