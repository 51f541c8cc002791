// SPDX-License-Identifier: Apache-2.0
// New paths of files that are renamed. Neighbours: port_own.c (own names), port_walk.c.
#include <fnmatch.h>
#include <string.h>

#include "port/port_own.h"

bool usc_port_renames_add(usc_port_renames *r, const char *path)
{
    for (const char *end = path; end != NULL; end = strchr(end, '/')) {
        end += end != path;
        const usc_hash128 key = usc_key_of(end);
        (void)usc_keys_put(&r->ends, key, 1);
        int64_t *value = usc_keys_find(&r->ends, key);
        if (value != NULL && end == path) *value = 2;
    }
    return !r->ends.failed;
}

/* Whether a path without globs is that of a renamed file, from a folder above the source
 * or below it on. */
static bool plainly_renamed(const usc_port_renames *r, const char *path)
{
    if (usc_keys_find(&r->ends, usc_key_of(path)) != NULL) return true;
    for (const char *rest = strchr(path, '/'); rest != NULL;
         rest = strchr(rest + 1, '/')) {
        const int64_t *value = usc_keys_find(&r->ends, usc_key_of(rest + 1));
        if (value != NULL && *value == 2) return true;
    }
    return false;
}

static bool glob_renamed(const usc_port_renames *r, const char *glob)
{
    for (size_t i = 0; i < r->n; i++) {
        const char *file = r->path[i];
        for (; file != NULL;
             file = strchr(file, '/') != NULL ? strchr(file, '/') + 1 : NULL)
            if (fnmatch(glob, file, 0) == 0) return true;
    }
    /* from a folder above the source: "pkg/csrc/a.cu" where csrc is ported */
    for (const char *rest = strchr(glob, '/'); rest != NULL; rest = strchr(rest + 1, '/'))
        for (size_t i = 0; i < r->n; i++)
            if (fnmatch(rest + 1, r->path[i], 0) == 0) return true;
    return false;
}

bool usc_port_renamed(const usc_port_job *job, const char *path)
{
    while (strncmp(path, "./", 2) == 0 || strncmp(path, "../", 3) == 0)
        path += path[1] == '/' ? 2 : 3;
    usc_port_renames *r = job->renames;
    if (r == NULL || r->n == 0 || path[0] == '\0') return false;
    if (strpbrk(path, "*?[\\") == NULL) return plainly_renamed(r, path);
    const usc_hash128 key = usc_key_of(path); /* each against all files, but once */
    const int64_t *known = usc_keys_find(&r->globs, key);
    if (known != NULL) return *known != 0;
    return usc_keys_put(&r->globs, key, glob_renamed(r, path)) != 0;
}

const char *usc_port_new_path(usc_port_job *job, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    if (dot == NULL) return NULL;
    const char *stem = usc_port_copy(job, base, (size_t)(dot - base));
    const char *own = job->options->rename_own ? usc_port_own_part(job, stem) : stem;
    const char *ending = usc_port_ending(job->options->target, dot);
    if (ending == NULL && strcmp(own, stem) == 0) return NULL;
    return usc_port_format(job, "%.*s%s%s", (int)(base - path), path, own,
                           ending != NULL ? ending : dot);
}

const char *usc_port_new_name(usc_port_job *job, const char *path)
{
    if (strchr(path, '.') == NULL || /* nearly all words of a build file */
        usc_port_language_of(path, job->options->target) != USC_PORT_CXX ||
        !usc_port_renamed(job, path[0] == '/' ? path + 1 : path))
        return NULL;
    return usc_port_new_path(job, path);
}
