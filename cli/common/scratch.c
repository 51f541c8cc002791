// SPDX-License-Identifier: Apache-2.0
// See scratch.h.
#include "common/scratch.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MOST_OPEN = 16 };

bool cli_scratch_make(const char *name, char *out, size_t size)
{
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0') base = "/tmp";
    if ((size_t)snprintf(out, size, "%s/%s-XXXXXX", base, name) < size &&
        mkdtemp(out) != NULL)
        return true;
    return cli_fail("no folder can be made in %s: %s; set TMPDIR", base,
                    strerror(errno)) == CLI_SAME;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    (void)remove(path);
    return 0;
}

void cli_scratch_remove(const char *folder)
{
    (void)nftw(folder, remove_one, MOST_OPEN, FTW_DEPTH | FTW_PHYS);
}
