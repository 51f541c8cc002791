// SPDX-License-Identifier: Apache-2.0
// Files of torch.save for `ulpscope judge`: read by torch, in a process of its own.
#ifndef ULPSCOPE_CLI_JUDGE_TORCH_H
#define ULPSCOPE_CLI_JUDGE_TORCH_H

#include <limits.h>
#include <stdbool.h>

#include "cli.h"

typedef struct judge_source {
    const char *given;      /* as it was typed */
    char path[PATH_MAX];    /* what is to be opened: `given`, or what was made of it */
    char scratch[PATH_MAX]; /* the folder that holds it; "": none */
} judge_source;

/** Makes safetensors of what torch wrote: of a file, or of those in a folder beside
 * the others. False after a sentence. */
bool judge_source_open(const char *given, judge_source *out);

/** Removes what was made. */
void judge_source_close(judge_source *s);

#endif
