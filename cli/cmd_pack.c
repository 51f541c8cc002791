// SPDX-License-Identifier: Apache-2.0
// ulpscope pack: the Python side (ulpscope._pack) does it; here is its help.
#include "cli.h"
#include "cli_python.h"

const char cmd_pack_help[] =
    "usage: ulpscope pack TRACE -o PACK [OPTIONS]\n"
    "\n"
    "Writes, for every call of a trace, its inputs and what its outputs must be, as\n"
    "safetensors files that need neither torch nor this trace: for a compiler, an RTL\n"
    "simulation, firmware. Feed the inputs to the device, save what it gives, and have "
    "it\n"
    "judged with `ulpscope judge PACK OUTPUTS`: the verdicts are those of `ulpscope "
    "check`.\n"
    "\n"
    "  PACK/pack.json     the calls: operator, arguments, names of inputs and outputs\n"
    "  PACK/inputs/N.safetensors     the inputs of call N, as they were captured\n"
    "  PACK/operands/N.safetensors   truth, yardstick and sensitivities: for the judge\n"
    "\n"
    "  -o PACK            the folder to write; it must not be there yet\n"
    "  --ops PATTERN      only these operators: globs, comma-separated, ! excludes\n"
    "  --distinct         one call per signature and module class\n"
    "  -j N               processes (default: one per core)\n"
    "  --import MODULE    import this first: it registers custom operators\n"
    "\n"
    "examples:\n"
    "  ulpscope pack ulpscope-trace -o pack --distinct\n"
    "  ulpscope pack ulpscope-trace -o pack --ops 'mm,addmm,bmm,*softmax*'\n"
    "\n"
    "exit code: 0 written, 2 something went wrong\n";

int cmd_pack(int argc, char **argv)
{
    return cli_python_exec("ulpscope._pack", argc, argv);
}
