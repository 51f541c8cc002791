// SPDX-License-Identifier: Apache-2.0
#include "base/path.h"

#include <stdio.h>

usc_status usc_path_join(char *out, const char *folder, const char *name, usc_error *err)
{
    const int n = snprintf(out, USC_PATH_SIZE, "%s/%s", folder, name);
    if (n >= 0 && n < USC_PATH_SIZE) return USC_OK;
    out[0] = '\0';
    return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", folder);
}
