// SPDX-License-Identifier: Apache-2.0
// What all fuzz targets use: a scratch folder, in memory where that can be.
#include "fuzz.h"

#include "trace_sample.h"

bool fuzz_taken;

static char *folder;

static void remove_folder(void)
{
    sample_remove(folder);
    free(folder);
}

const char *fuzz_folder(void)
{
    if (folder != NULL) return folder;
    folder = sample_folder();
    (void)atexit(remove_folder);
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *f = fopen(path, "wb");
    FUZZ_REQUIRE(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
    return path;
}
