// SPDX-License-Identifier: Apache-2.0
// ulpscope check: the Python side (ulpscope._check) does it; here is its help.
#include "cli.h"
#include "cli_python.h"

const char cmd_check_help[] =
    "usage: ulpscope check TRACE --device DEVICE [OPTIONS]\n"
    "\n"
    "Replays every call of a trace on DEVICE in worker processes, computes what is true\n"
    "(float64) and what honest float32 gives on the CPU, and judges each call. A worker\n"
    "that crashes or hangs costs one call. Interrupted, the same command goes on where "
    "it\n"
    "stopped. Ends with the report of what was found.\n"
    "\n"
    "  --device DEVICE    what to test: sim:0, cuda:0, npu:0, ...\n"
    "  --ops PATTERN      only these operators: globs, comma-separated, ! excludes\n"
    "  --distinct         one call per signature and module class\n"
    "  -j N               worker processes (default: one per core)\n"
    "  --timeout S        seconds that one call may take (default 120)\n"
    "  --import MODULE    import this first: it registers custom operators\n"
    "  -o OUT             folder of the results (default ulpscope-out)\n"
    "  --force            replace results of another run in OUT\n"
    "  --faults SPEC      plant faults in the simulated device\n"
    "  --budget TIME      stop after 90s, 10m or 1h, the most telling calls first: one "
    "per\n"
    "                     signature (rare operators before others), one per signature\n"
    "                     and module class, then those of the worst operators; the same\n"
    "                     command goes on with what was left out\n"
    "  --allow VERDICT[:PATTERN]  do not let this decide the exit code; may be repeated\n"
    "  --strict           unjudged and unsupported calls count as flagged too\n"
    "  --standard NAME    judge by another rule: ascend-v1, ascend-absolute, "
    "ascend-ulp,\n"
    "                     ascend-benchmark, torch-close, allclose:ATOL,RTOL, ulp:K, "
    "bitwise,\n"
    "                     cosine:X, neuron-3way, inductor-same, ggml-nmse, kernelbench\n"
    "  --compare-standards  tell what each of them says of every call as well\n"
    "  --baseline FILE    flag only what is new or worse than in an earlier run\n"
    "  --junit FILE       write JUnit XML; --annotate: print `::error` lines for GitHub\n"
    "\n"
    "examples:\n"
    "  ulpscope check ulpscope-trace --device npu:0\n"
    "  ulpscope check ulpscope-trace --device cuda:0 --ops 'mm,addmm,bmm' --distinct\n"
    "  ulpscope check ulpscope-trace --device cuda:0 --allow reduced:mm   TF32 is "
    "wanted\n"
    "\n"
    "exit code: 1 when a call is crashed, timeout, nonfinite, wrong, reduced or\n"
    "intermittent and not allowed; 2 when nothing was judged or something went wrong; "
    "else 0\n";

int cmd_check(int argc, char **argv)
{
    return cli_python_exec("ulpscope._check", argc, argv);
}
