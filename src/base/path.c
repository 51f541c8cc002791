// SPDX-License-Identifier: Apache-2.0
#include "base/path.h"

#include <string.h>

usc_status usc_path_join(char *out, const char *folder, const char *name, usc_error *err)
{
    const size_t n = strlen(folder), m = strlen(name);
    if (n < USC_PATH_SIZE && m < USC_PATH_SIZE - n - 1) {
        memcpy(out, folder, n);
        out[n] = '/';
        memcpy(out + n + 1, name, m + 1);
        return USC_OK;
    }
    out[0] = '\0';
    return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", folder);
}
