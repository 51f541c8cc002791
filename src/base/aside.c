// SPDX-License-Identifier: Apache-2.0
// Threads that work for a device or a tool and not for the program.
#include <ulpscope/x/aside.h>

static _Thread_local bool aside;

bool usc_set_aside(bool on)
{
    const bool before = aside;
    aside = on;
    return before;
}

bool usc_is_aside(void)
{
    return aside;
}
