// SPDX-License-Identifier: Apache-2.0
// ulpscope repro: the Python side (ulpscope.session.repro) does it; here are its options.
#include "cli.h"
#include "cli_python.h"

enum { OPT_DEVICE = 256, OPT_IMPORT };

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "what the script tries unless told otherwise (default: what captured the trace)"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this first: it registers custom operators; may be repeated"},
    {'o', "out", "FILE.py", "repro-SEQUENCE.py", "the script; it must not be there yet"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_repro_page = {
    .command = "repro",
    .usage = "TRACE#SEQUENCE [OPTIONS]",
    .about =
        "Writes one call of a trace as a script that needs torch alone, for those who "
        "mend the device: its arguments as they were captured, the call in one line, "
        "and a comparison with float64 and float32 on the CPU. Tensors of more than "
        "256 KiB lie in FILE.safetensors beside it.\n"
        "The script exits with 0 where the device is about as good as float32 on the "
        "CPU, 1 where it is not, 2 where it could not be tried. `ulpscope check "
        "TRACE#SEQUENCE` judges more strictly.\n",
    .options = options,
    .examples = "  ulpscope repro ulpscope-trace#38 --device npu:0\n"
                "  python repro-38.py --device npu:0 --import torch_npu\n",
    .codes = "0 written, 2 something went wrong",
};

int cmd_repro(int argc, char **argv)
{
    (void)argc;
    return cli_python_exec("ulpscope.session.repro", (const char *const *)(argv + 1));
}
