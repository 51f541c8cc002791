// SPDX-License-Identifier: Apache-2.0
// ulpscope capture: the Python side (ulpscope._launch) does it; here is its help.
#include "cli.h"
#include "cli_python.h"

const char cmd_capture_help[] =
    "usage: ulpscope capture [OPTIONS] -- COMMAND [ARGS]...\n"
    "\n"
    "Runs COMMAND unmodified (python train.py, python -m pkg, torchrun, a shell "
    "script),\n"
    "records every operator call of one step, then ends the run. A step ends with the\n"
    "optimizer's step; without an optimizer the data loader counts. A program in which\n"
    "nothing steps (inference) is one step: --steps 0. Each rank of a job writes\n"
    "TRACE/rank-N; of several programs in a script the first to get there counts.\n"
    "\n"
    "  --steps LIST       steps to record, from 0: 1 (default), 2,5-8\n"
    "  --data full|stats  keep the tensors (default), or only statistics of them\n"
    "  --ops PATTERN      only these operators: globs, comma-separated, ! excludes\n"
    "  -o TRACE           folder of the trace (default ulpscope-trace)\n"
    "  --limit SIZE       stop before the tensors take more, e.g. 50GB (default: leave "
    "5 %\n"
    "                     of the disk free); the trace stays valid\n"
    "  --force            replace the trace that the folder holds\n"
    "  --step-by WHAT     what ends a step: optimizer, dataloader or manual (the "
    "program\n"
    "                     calls ulpscope.step())\n"
    "  --no-compile       switch torch.compile off in COMMAND: calls inside compiled "
    "regions\n"
    "                     are recorded then\n"
    "  --keep-going       let the run go on after the last step recorded\n"
    "\n"
    "examples:\n"
    "  ulpscope capture -- python train.py --lr 3e-4\n"
    "  ulpscope capture --steps 0 -- python generate.py\n"
    "  ulpscope capture --steps 0,100 --data stats -o t -- torchrun --nproc-per-node 4 "
    "train.py\n"
    "  ulpscope capture --ops 'softmax,*norm*' -- python -m mypackage.train\n"
    "\n"
    "exit code: 0 when the steps were recorded (see them with ulpscope show), 2 when "
    "not,\n"
    "128 + n when signal n ended it\n";

int cmd_capture(int argc, char **argv)
{
    return cli_python_exec("ulpscope._launch", argc, argv);
}
