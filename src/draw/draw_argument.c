// SPDX-License-Identifier: Apache-2.0
// The arguments of a call that draws, by name.
#include "draw/draw_drop.h"

#include <string.h>

const usc_draw_argument *usc_draw_argument_of(const usc_draw_call *call, const char *name)
{
    for (int i = 0; i < call->n_arguments && name != NULL; i++)
        if (strcmp(call->arguments[i].name, name) == 0) return &call->arguments[i];
    return NULL;
}
