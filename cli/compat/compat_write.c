// SPDX-License-Identifier: Apache-2.0
// Folders and files of a shim. See compat.h.
#include "compat/compat.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool compat_make(const char *folder, const char *below, char path[PATH_MAX])
{
    if ((size_t)snprintf(path, PATH_MAX, "%s%s%s", folder, *below != '\0' ? "/" : "",
                         below) < PATH_MAX &&
        (mkdir(path, 0777) == 0 || errno == EEXIST) && cli_is_folder(path))
        return true;
    cli_fail("%s/%s cannot be made: %s", folder, below, strerror(errno));
    return false;
}

bool compat_write(const char *folder, const char *name, const char *text,
                  const char *word)
{
    char path[PATH_MAX];
    FILE *file = NULL;
    const char *gap = word != NULL ? strstr(text, "%s") : NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path)
        file = fopen(path, "w");
    bool good = file != NULL;
    if (good && gap != NULL)
        good = fprintf(file, "%.*s%s%s", (int)(gap - text), text, word, gap + 2) >= 0;
    else if (good)
        good = fputs(text, file) >= 0;
    if (file != NULL && fclose(file) != 0) good = false;
    if (!good) cli_fail("%s/%s cannot be written: %s", folder, name, strerror(errno));
    return good;
}
