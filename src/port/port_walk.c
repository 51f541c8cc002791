// SPDX-License-Identifier: Apache-2.0
// What lies in a source folder. Links are never followed: one that stays inside is made
// anew, one that leads out or nowhere is left and named.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/port_tree.h"

static usc_port_entry *add(usc_port_run_state *s, const char *path, usc_port_what what)
{
    if (s->n_entries == s->entries_size) {
        usc_port_entry *grown = usc_arena_grow(&s->kept, s->entry, s->n_entries,
                                               &s->entries_size, sizeof *s->entry);
        if (grown == NULL) return NULL;
        s->entry = grown;
    }
    const char *kept = usc_arena_text(&s->kept, path);
    if (kept == NULL) return NULL;
    usc_port_entry *e = &s->entry[s->n_entries++];
    *e = (usc_port_entry){.path = kept, .to = kept, .what = what};
    return e;
}

static bool skipped(const char *name)
{
    static const char *const names[] = {".", "..", ".git", ".hg", ".svn", "__pycache__"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strncmp(name, ".ulpscope-port", 14) == 0;
}

static bool ignored(const usc_port_run_state *s, const char *path)
{
    for (size_t i = 0; i < s->options->n_ignore; i++) {
        const char *glob = s->options->ignore[i];
        const size_t n = strlen(glob);
        if (usc_port_glob(glob, path)) return true;
        /* a folder, and all in it */
        if (n > 0 && strncmp(path, glob, n) == 0 &&
            (path[n] == '/' || glob[n - 1] == '/'))
            return true;
    }
    return false;
}

static usc_port_language language_of(const usc_port_run_state *s, const char *path)
{
    const usc_port_language language = usc_port_language_of(path, s->options->target);
    const unsigned only = s->options->only;
    if (ignored(s, path) || (only != 0 && (only & (1U << language)) == 0))
        return USC_PORT_OTHER;
    return language;
}

static usc_status walk(usc_port_run_state *s, const char *below, usc_error *err);

static const char *where_link_leads(const usc_port_run_state *s, const char *full)
{
    char to[PATH_MAX];
    const size_t n = strlen(s->root);
    if (realpath(full, to) == NULL)
        return errno == ELOOP ? "a link in a circle" : "a link to nothing";
    return strncmp(to, s->root, n) == 0 && (to[n] == '/' || to[n] == '\0')
               ? NULL
               : "a link out of the source";
}

static usc_status take(usc_port_run_state *s, const char *path, usc_error *err)
{
    char full[USC_PATH_SIZE];
    struct stat about;
    usc_status st = usc_path_join(full, s->root, path, err);
    if (st != USC_OK) return st;
    if (lstat(full, &about) != 0)
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", full, strerror(errno));
    const bool folder = S_ISDIR(about.st_mode), link = S_ISLNK(about.st_mode);
    if (!folder && !link && !S_ISREG(about.st_mode)) return USC_OK; /* pipes, sockets */
    usc_port_entry *e = add(s, path,
                            folder ? USC_PORT_FOLDER
                            : link ? USC_PORT_LINK
                                   : USC_PORT_FILE);
    if (e == NULL) return usc_no_memory(full, err);
    if (folder) return walk(s, path, err);
    if (link) e->refused = where_link_leads(s, full);
    if (!link) e->language = language_of(s, path);
    if (!link && about.st_size > ((off_t)64 << 20) && e->language != USC_PORT_OTHER)
        e->refused = "more than 64 MiB";
    return USC_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct name_list {
    char **name;
    size_t n, size;
    bool failed; /* no memory at some time */
} name_list;

static void add_name(name_list *l, const char *name)
{
    if (l->n == l->size) {
        const size_t size = l->size > 0 ? l->size * 2 : 32;
        char **grown = realloc(l->name, size * sizeof *grown);
        if (grown == NULL) {
            l->failed = true;
            return;
        }
        l->name = grown;
        l->size = size;
    }
    l->name[l->n] = strdup(name);
    if (l->name[l->n] == NULL)
        l->failed = true;
    else
        l->n++;
}

/* The names in a folder, sorted. */
static usc_status list(const char *folder, name_list *l, usc_error *err)
{
    DIR *dir = opendir(folder);
    *l = (name_list){0};
    if (dir == NULL)
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", folder, strerror(errno));
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (!skipped(e->d_name)) add_name(l, e->d_name);
    (void)closedir(dir);
    if (l->n > 0) qsort(l->name, l->n, sizeof *l->name, by_name);
    return l->failed ? usc_no_memory(folder, err) : USC_OK;
}

static usc_status walk(usc_port_run_state *s, const char *below, usc_error *err)
{
    char full[USC_PATH_SIZE], path[USC_PATH_SIZE];
    name_list names;
    usc_status st = usc_path_join(full, s->root, below, err);
    if (st != USC_OK) return st;
    st = list(below[0] != '\0' ? full : s->root, &names, err);
    for (size_t i = 0; i < names.n; i++) {
        if (st == USC_OK && below[0] != '\0')
            st = usc_path_join(path, below, names.name[i], err);
        if (st == USC_OK) st = take(s, below[0] != '\0' ? path : names.name[i], err);
        free(names.name[i]);
    }
    free(names.name);
    return st;
}

/* The path as a file system without case has it. */
static usc_hash128 key_of_path(const char *path)
{
    char low[USC_PATH_SIZE];
    size_t n = 0;
    for (; path[n] != '\0' && n < sizeof low; n++)
        low[n] = (char)tolower((unsigned char)path[n]);
    return usc_hash_bytes(low, n);
}

/* Which files get another ending; one whose new name is taken keeps its own. */
static usc_status rename_all(usc_port_run_state *s, usc_keys *taken, usc_error *err)
{
    usc_port_job job = {.options = s->options, .names = &s->names, .arena = &s->kept};
    const char **path = usc_arena_take(&s->kept, (s->n_entries + 1) * sizeof *path);
    if (path == NULL) return usc_no_memory("names", err);
    s->renames.path = path;
    for (size_t i = 0; i < s->n_entries; i++)
        (void)usc_keys_put(taken, key_of_path(s->entry[i].path), 1);
    if (taken->failed) return usc_no_memory("names", err);
    for (size_t i = 0; i < s->n_entries; i++) {
        usc_port_entry *e = &s->entry[i];
        if (e->what != USC_PORT_FILE || e->language != USC_PORT_CXX || e->refused != NULL)
            continue;
        const char *to = usc_port_new_path(&job, e->path);
        if (job.failed) return usc_no_memory("names", err);
        if (to == NULL) continue;
        if (usc_keys_find(taken, key_of_path(to)) != NULL) {
            e->refused = "its new name is taken";
            continue;
        }
        e->to = to;
        path[s->renames.n++] = e->path;
        if (!usc_port_renames_add(&s->renames, e->path))
            return usc_no_memory("names", err);
    }
    return USC_OK;
}

usc_status usc_port_walk(usc_port_run_state *s, const char *source, usc_error *err)
{
    struct stat about;
    usc_status st;
    if (stat(source, &about) != 0)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", source, strerror(errno));
    s->single = !S_ISDIR(about.st_mode);
    char full[PATH_MAX];
    if (realpath(source, full) == NULL || strlen(full) >= USC_PATH_SIZE)
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", source, strerror(errno));
    (void)snprintf(s->named, sizeof s->named, "%s", source);
    size_t n = strlen(s->named);
    while (n > 1 && s->named[n - 1] == '/')
        s->named[--n] = '\0';
    const char *as =
        strrchr(s->named, '/') != NULL ? strrchr(s->named, '/') + 1 : s->named;
    if (as[0] == '.' || as[0] == '\0') /* "..": its name is needed */
        (void)snprintf(s->named, sizeof s->named, "%s", full);
    char *last = s->single ? strrchr(full, '/') : NULL;
    if (last != NULL) *last = '\0';
    (void)snprintf(s->root, sizeof s->root, "%s", full[0] != '\0' ? full : "/");
    st = last != NULL ? take(s, last + 1, err) : walk(s, "", err);
    if (st == USC_OK && s->n_entries == 0)
        st = usc_error_set(err, USC_E_RANGE, -1, "%s is empty: nothing to port", source);
    usc_keys taken = {0};
    if (st == USC_OK) st = rename_all(s, &taken, err);
    usc_keys_free(&taken);
    return st;
}
