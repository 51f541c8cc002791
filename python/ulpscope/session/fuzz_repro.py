# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz minimize SEED:CASE`: a case as a folder to hand to those who mend the device,
as `ulpscope repro` writes one of a captured call (`repro`). Needs of torch what replays need."""

import json
import os
import sys

from .. import _core
from ..calls.homes import import_modules
from ..executors.precision import STANDARD, space_of
from ..judges import wording
from ..sources import fuzz
from . import repro


class Options:
    """What the program read and checked (cli/cmd_fuzz.c): values by their places, then the
    modules to import. As `repro.Options`."""

    def __init__(self, words):
        self.folder, example, self.device, self.out, seed, case, stress, self.faults, *self.imports = words
        self.example, self.seed, self.case = int(example), int(seed), int(case)
        self.stress, self.sequence, self.out = bool(stress), self.case, os.path.abspath(self.out)


def read(options):
    """The case, the row that a report speaks of, and what to import for its operator."""
    trace = _core.Trace(options.folder)
    recorded = json.loads(trace.meta("imports") or "[]")
    import_modules(recorded, options.imports)
    row = trace.call(options.example)
    call, words = fuzz.drawn(fuzz.Example(row, trace.meta("id") or ""), options.seed, options.case, options.stress)
    repro.say(f"case {options.seed}:{options.case}: {call.op}({wording.describe_arguments(call)}), {words}")
    told = {**row, "sequence": options.case, "step": 0, "module_path": "", "module_class": ""}
    imports = [] if space_of(call.op) in STANDARD else recorded
    return call, told, list(dict.fromkeys(imports + options.imports))


def main(words=None):
    """The program's half of the command."""
    options = Options(sys.argv[1:] if words is None else words)
    try:
        if options.faults:
            os.environ["ULPSCOPE_SIM_FAULTS"] = options.faults
        return repro.repro(options, read)
    except Exception as problem:
        repro.say(repro.trouble(problem, options))
    return 2


if __name__ == "__main__":
    sys.exit(main())
