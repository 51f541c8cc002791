// SPDX-License-Identifier: Apache-2.0
// The bytes of a file that holds a curve, or of the event files in a folder, one behind
// the other in the order of their names: a run that was resumed writes another one.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/path.h"
#include "loss/curve.h"

enum { CHUNK = 1 << 16 };
static const size_t most = (size_t)2 << 30;

static usc_status take_file(usc_line *l, const char *path, usc_error *err)
{
    char chunk[CHUNK];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", path, strerror(errno));
    for (size_t n;
         !l->failed && l->n <= most && (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        usc_line_put(l, chunk, n);
    const bool bad = ferror(file) != 0;
    const int error = errno;
    (void)fclose(file);
    if (bad) return usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(error));
    if (l->failed) return usc_no_memory(path, err);
    if (l->n > most)
        return usc_error_set(err, USC_E_RANGE, -1,
                             "%s: more than 2 GiB; cut out the lines with the loss, e.g. "
                             "with grep",
                             path);
    return USC_OK;
}

static int is_events(const struct dirent *e)
{
    return strstr(e->d_name, "tfevents") != NULL;
}

static usc_status take_folder(usc_line *l, const char *folder, usc_error *err)
{
    struct dirent **found = NULL;
    char path[USC_PATH_SIZE];
    usc_status st = USC_OK;
    const int n = scandir(folder, &found, is_events, alphasort);
    if (n < 0) return usc_error_set(err, USC_E_IO, -1, "%s: %s", folder, strerror(errno));
    if (n == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "%s is a folder without event files of TensorBoard "
                           "(*tfevents*); name the file",
                           folder);
    for (int i = 0; i < n; i++) {
        if (st == USC_OK) st = usc_path_join(path, folder, found[i]->d_name, err);
        if (st == USC_OK) st = take_file(l, path, err);
        free(found[i]);
    }
    free(found);
    return st;
}

usc_status usc_curve_read(const char *path, const usc_curve_options *options,
                          usc_curve **out, usc_error *err)
{
    usc_line bytes = {0};
    struct stat info;
    *out = NULL;
    usc_status st = stat(path, &info) == 0 && S_ISDIR(info.st_mode)
                        ? take_folder(&bytes, path, err)
                        : take_file(&bytes, path, err);
    if (st == USC_OK)
        st = usc_curve_parse(path, bytes.text != NULL ? bytes.text : "", bytes.n, options,
                             out, err);
    usc_line_free(&bytes);
    return st;
}
