// SPDX-License-Identifier: Apache-2.0
#include <ulpscope/version.h>

const char *usc_version(void)
{
    return USC_VERSION;
}
