// SPDX-License-Identifier: Apache-2.0
// ulpscope repro: the Python side (ulpscope._repro) does it; here is its help.
#include "cli.h"
#include "cli_python.h"

const char cmd_repro_help[] =
    "usage: ulpscope repro TRACE#SEQUENCE [--device DEVICE] [--import MODULE] [-o "
    "FILE.py]\n"
    "\n"
    "Writes one call of a trace as a script that needs torch alone, for those who mend\n"
    "the device: its arguments as they were captured, the call in one line, and a\n"
    "comparison with float64 and float32 on the CPU. Tensors of more than 256 KiB lie "
    "in\n"
    "FILE.safetensors beside it.\n"
    "\n"
    "  --device DEVICE    what the script tries unless told otherwise (default: what\n"
    "                     captured the trace)\n"
    "  --import MODULE    import this first: it registers custom operators\n"
    "  -o FILE.py         the script (default repro-SEQUENCE.py); it must not be there "
    "yet\n"
    "\n"
    "The script exits with 0 where the device is about as good as float32 on the CPU, 1\n"
    "where it is not, 2 where it could not be tried. `ulpscope check TRACE#SEQUENCE` "
    "judges\n"
    "more strictly.\n"
    "\n"
    "examples:\n"
    "  ulpscope repro ulpscope-trace#38 --device npu:0\n"
    "  python repro-38.py --device npu:0 --import torch_npu\n"
    "\n"
    "exit code: 0 written, 2 something went wrong\n";

int cmd_repro(int argc, char **argv)
{
    return cli_python_exec("ulpscope._repro", argc, argv);
}
