# SPDX-License-Identifier: Apache-2.0
"""SimplePorting: a folder of CUDA C++ beside itself, as DIR_musa, by `ulpscope port`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from .porting import map_file, port, read_mapping


def as_value(value: Any, otherwise: Any) -> Any:
    """JSON in a text, as the options of the module give it; a ValueError with what it is for other texts."""
    if value is None or value == "":
        return otherwise
    if not isinstance(value, str):
        return value
    read = json.loads(value)
    if not isinstance(read, type(otherwise)):
        raise ValueError(f"{value!r} is no {type(otherwise).__name__} of JSON")
    return read


class SimplePorting:
    """Nothing is touched before `run()`. An output of an earlier run is replaced when the new one is whole."""

    def __init__(
        self,
        cuda_dir_path: str | None = None,
        ignore_dir_paths: list[str] | str | None = None,
        mapping_rule: dict[str, str] | str | None = None,
        drop_default_mapping: bool = False,
        mapping_dir_path: str | None = None,
    ) -> None:
        self.cuda_dir_path = Path(os.path.realpath(cuda_dir_path or "cuda"))
        self.musa_dir_path = self.cuda_dir_path.with_name(self.cuda_dir_path.name + "_musa")
        self.ignore_dir_paths = as_value(ignore_dir_paths, [])
        self.mapping_rule: dict[str, str] = as_value(mapping_rule, {})
        self.drop_default_mapping = drop_default_mapping
        self.mapping_dir_path = mapping_dir_path
        self.output = ""  # what is left for a human, after run()

    def rules(self) -> dict[str, str]:
        """The user's rules win over those of files, and those over the table."""
        if self.drop_default_mapping:
            if not self.mapping_rule:
                raise ValueError("drop_default_mapping leaves no rule: give mapping_rule")
            return dict(self.mapping_rule)
        files = sorted(Path(self.mapping_dir_path).glob("*.json")) if self.mapping_dir_path else []
        return read_mapping(files) | self.mapping_rule

    def ignored(self) -> list[str]:
        """Globs of the ignored folders and all in them, below the source."""
        found: list[str] = []
        for path in self.ignore_dir_paths:
            inside = os.path.relpath(os.path.realpath(path), self.cuda_dir_path)
            if inside == os.pardir or inside.startswith(os.pardir + os.sep):
                inside = str(path)  # as it is given: below the source
            found += ["--ignore", inside, "--ignore", f"{inside.rstrip('/')}/*"]
        return found

    def run(self) -> None:
        if not self.cuda_dir_path.is_dir():
            raise FileNotFoundError(f"{self.cuda_dir_path}: no such folder")
        with (
            map_file(self.rules()) as rules,
            tempfile.TemporaryDirectory(dir=self.cuda_dir_path.parent) as folder,
        ):
            out = Path(folder) / "out"
            more: list[str | Path] = ["--map", rules] if rules else []
            if self.drop_default_mapping:
                more.append("--no-default-map")
            _, self.output = port(self.cuda_dir_path, "--to", "musa", "-o", out, *self.ignored(), *more)
            if self.musa_dir_path.exists():
                shutil.rmtree(self.musa_dir_path)
            os.rename(out, self.musa_dir_path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simple_porting", description=__doc__)
    parser.add_argument("--cuda-dir-path", default="cuda/")
    parser.add_argument("--ignore-dir-paths", default=None, help='JSON: ["cuda/old"]')
    parser.add_argument("--mapping-rule", default=None, help='JSON: {"cudaFree": "musaFree"}')
    parser.add_argument("--drop-default-mapping", action="store_true")
    parser.add_argument("--mapping-dir-path", default=None)
    given = parser.parse_args(arguments)
    try:
        porting = SimplePorting(**vars(given))
        porting.run()
    except (OSError, RuntimeError, ValueError) as problem:
        print(f"simple_porting: {problem}", file=sys.stderr)
        return 2
    print(porting.output, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
