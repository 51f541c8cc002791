// SPDX-License-Identifier: Apache-2.0
// A port in place. Before the first file is touched, all that is needed to go back lies
// in a folder that appears whole: the old bytes, the new ones, and a manifest with the
// hashes of both. Then each file is replaced in one step, so that at any time each is
// either the old or the new one, and usc_port_revert takes both.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/hash.h"
#include "base/line.h"
#include "port/port_tree.h"
#include "json/json.h"

static usc_status refused(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
}

usc_status usc_port_back_folder(const char *source, char *root, char *out, usc_error *err)
{
    struct stat about;
    char full[USC_PATH_SIZE];
    (void)snprintf(full, sizeof full, "%s", source);
    size_t n = strlen(full);
    while (n > 1 && full[n - 1] == '/')
        full[--n] = '\0';
    if (stat(full, &about) == 0 && S_ISDIR(about.st_mode)) {
        (void)snprintf(root, USC_PATH_SIZE, "%s", full);
        return usc_path_join(out, root, ".ulpscope-port", err);
    }
    char name[USC_PATH_SIZE];
    const char *last = strrchr(full, '/');
    if (last == NULL)
        (void)snprintf(root, USC_PATH_SIZE, ".");
    else
        (void)snprintf(root, USC_PATH_SIZE, "%.*s", last == full ? 1 : (int)(last - full),
                       full);
    if (snprintf(name, sizeof name, ".ulpscope-port-%s",
                 last != NULL ? last + 1 : full) >= (int)sizeof name)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", full);
    return usc_path_join(out, root, name, err);
}

static usc_status numbered(char *out, const char *folder, const char *which, size_t i,
                           usc_error *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s-%zu", which, i);
    return usc_path_join(out, folder, name, err);
}

/* Old and new bytes of one entry into the folder, and its line of the manifest. */
static usc_status stage(usc_port_run_state *s, const usc_port_entry *e, const char *part,
                        size_t i, usc_line *manifest, bool *any, usc_error *err)
{
    char from[USC_PATH_SIZE], to[USC_PATH_SIZE];
    char *old;
    size_t old_size;
    struct stat about;
    usc_port_done done;
    usc_status st = usc_port_entry_run(s, e, &done, err);
    if (st != USC_OK || s->options->dry_run) return st;
    const bool renamed = strcmp(e->path, e->to) != 0;
    if (e->what != USC_PORT_FILE || (!renamed && !done.changed)) return USC_OK;
    st = usc_path_join(from, s->root, e->path, err);
    if (st == USC_OK) st = usc_port_read(from, &s->scratch, &old, &old_size, &about, err);
    if (st != USC_OK) return st;
    const char *bytes = done.changed ? done.bytes : old;
    const size_t size = done.changed ? done.size : old_size;
    st = numbered(to, part, "old", i, err);
    if (st == USC_OK) st = usc_port_write(to, old, old_size, about.st_mode, err);
    if (st == USC_OK) st = numbered(to, part, "new", i, err);
    if (st == USC_OK) st = usc_port_write(to, bytes, size, about.st_mode, err);
    const usc_hash128 a = usc_hash_bytes(old, old_size), b = usc_hash_bytes(bytes, size);
    usc_line_text(manifest, *any ? ",\n  {\"path\": " : "\n  {\"path\": ");
    usc_line_json(manifest, e->path);
    usc_line_text(manifest, ", \"to\": ");
    usc_line_json(manifest, e->to);
    usc_line_add(manifest,
                 ", \"n\": %zu, \"old\": \"%016llx%016llx\", \"new\": "
                 "\"%016llx%016llx\"}",
                 i, (unsigned long long)a.high, (unsigned long long)a.low,
                 (unsigned long long)b.high, (unsigned long long)b.low);
    *any = true;
    return st;
}

/* Moves what is staged to its places. */
static usc_status replace_all(usc_port_run_state *s, const char *back, usc_error *err)
{
    char from[USC_PATH_SIZE], to[USC_PATH_SIZE], was[USC_PATH_SIZE];
    for (size_t i = 0; i < s->n_entries; i++) {
        const usc_port_entry *e = &s->entry[i];
        usc_status st = numbered(from, back, "new", i, err);
        if (st == USC_OK) st = usc_path_join(to, s->root, e->to, err);
        if (st == USC_OK) st = usc_path_join(was, s->root, e->path, err);
        if (st != USC_OK) return st;
        if (access(from, F_OK) != 0) continue; /* does not change */
        if (rename(from, to) != 0) return refused(to, err);
        if (strcmp(to, was) != 0 && unlink(was) != 0) return refused(was, err);
    }
    return USC_OK;
}

static usc_status stage_all(usc_port_run_state *s, const char *part, bool *any,
                            usc_error *err)
{
    usc_line manifest = {0};
    char path[USC_PATH_SIZE];
    usc_status st = USC_OK;
    usc_line_text(&manifest, "{\"version\": 1, \"files\": [");
    for (size_t i = 0; i < s->n_entries && st == USC_OK; i++)
        if (s->entry[i].what != USC_PORT_FOLDER)
            st = stage(s, &s->entry[i], part, i, &manifest, any, err);
    usc_line_text(&manifest, "]}\n");
    if (st == USC_OK && manifest.failed) st = usc_no_memory("the manifest", err);
    if (st == USC_OK && *any) st = usc_path_join(path, part, "manifest.json", err);
    if (st == USC_OK && *any)
        st = usc_port_write(path, manifest.text, manifest.n, 0644, err);
    if (st == USC_OK && *any) st = usc_folder_flush(part, err);
    usc_line_free(&manifest);
    return st;
}

usc_status usc_port_in_place(usc_port_run_state *s, const char *source, usc_error *err)
{
    char root[USC_PATH_SIZE], back[USC_PATH_SIZE], part[USC_PATH_SIZE];
    bool any = false;
    usc_status st = usc_port_back_folder(source, root, back, err);
    if (st != USC_OK) return st;
    s->result.out = usc_arena_text(&s->kept, source);
    if (snprintf(part, sizeof part, "%s.part", back) >= (int)sizeof part)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", back);
    if (!s->options->dry_run) {
        usc_folder_remove(part);
        st = usc_folder_make(part, "", err);
    }
    if (st == USC_OK) st = stage_all(s, part, &any, err);
    if (st == USC_OK && any && access(back, F_OK) == 0)
        st = usc_error_set(err, USC_E_EXISTS, -1,
                           "%s was ported in place before, and would change again: go "
                           "back first with --revert, or remove %s to keep what there is",
                           source, back);
    if (st == USC_OK && any && rename(part, back) != 0) st = refused(back, err);
    if (!s->options->dry_run && (st != USC_OK || !any)) usc_folder_remove(part);
    return st == USC_OK && any ? replace_all(s, back, err) : st;
}

/* ---- the way back */

typedef struct saved {
    const char *path, *to, *old_hash, *new_hash;
    int64_t n;
    bool is_old; /* already what it was: of a port that was cut short */
} saved;

static void hash_text(const char *bytes, size_t size, char out[33])
{
    const usc_hash128 h = usc_hash_bytes(bytes, size);
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high,
                   (unsigned long long)h.low);
}

/* Whether the file at a path has this hash; false where it is not there. */
static bool has_hash(const char *root, const char *path, const char *hash)
{
    char full[USC_PATH_SIZE], text[33];
    usc_arena arena = {.alloc = usc_libc_alloc};
    char *bytes;
    size_t size;
    struct stat about;
    bool same = false;
    if (usc_path_join(full, root, path, NULL) == USC_OK &&
        usc_port_read(full, &arena, &bytes, &size, &about, NULL) == USC_OK) {
        hash_text(bytes, size, text);
        same = strcmp(text, hash) == 0;
    }
    usc_arena_free(&arena);
    return same;
}

static usc_status check_one(const char *root, saved *f, usc_error *err)
{
    /* paths of a manifest lead nowhere else, whoever wrote it */
    if (f->path[0] == '/' || f->to[0] == '/' || strstr(f->path, "..") != NULL ||
        strstr(f->to, "..") != NULL)
        return usc_error_set(err, USC_E_CORRUPT, -1, "the manifest names %s", f->path);
    f->is_old = has_hash(root, f->path, f->old_hash);
    if (f->is_old || has_hash(root, f->to, f->new_hash)) return USC_OK;
    return usc_error_set(err, USC_E_EXISTS, -1,
                         "%s/%s was changed since the port: nothing is taken back. Save "
                         "your change elsewhere first",
                         root, f->to);
}

static usc_status restore_one(const char *root, const char *back, const saved *f,
                              usc_error *err)
{
    char from[USC_PATH_SIZE], to[USC_PATH_SIZE], now[USC_PATH_SIZE];
    usc_status st = numbered(from, back, "old", (size_t)f->n, err);
    if (st == USC_OK) st = usc_path_join(to, root, f->path, err);
    if (st == USC_OK) st = usc_path_join(now, root, f->to, err);
    if (st != USC_OK) return st;
    if (!f->is_old && rename(from, to) != 0) return refused(to, err);
    if (strcmp(to, now) != 0 && has_hash(root, f->to, f->new_hash) && unlink(now) != 0)
        return refused(now, err);
    return USC_OK;
}

static usc_status take_saved(usc_json_taker *t, const usc_json *root, saved **out,
                             size_t *n, usc_error *err)
{
    const usc_json *files = usc_json_list(t, root, "files");
    *n = usc_json_size(files);
    *out = calloc(*n + 1, sizeof **out);
    if (*out == NULL) return usc_no_memory("the manifest", err);
    for (size_t i = 0; i < *n; i++) {
        const usc_json *item = usc_json_item(files, i);
        (*out)[i] = (saved){.path = usc_json_text(t, item, "path", ""),
                            .to = usc_json_text(t, item, "to", ""),
                            .old_hash = usc_json_text(t, item, "old", ""),
                            .new_hash = usc_json_text(t, item, "new", ""),
                            .n = usc_json_integer(t, item, "n", 0)};
    }
    return t->status;
}

usc_status usc_port_revert(const char *source, int64_t *n_files, usc_error *err)
{
    char root[USC_PATH_SIZE], back[USC_PATH_SIZE], path[USC_PATH_SIZE];
    usc_json *manifest = NULL;
    saved *file = NULL;
    size_t n = 0;
    *n_files = 0;
    usc_status st = usc_port_back_folder(source, root, back, err);
    if (st == USC_OK) st = usc_path_join(path, back, "manifest.json", err);
    if (st != USC_OK) return st;
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return usc_error_set(err, USC_E_NOT_FOUND, -1,
                             "%s was not ported in place: there is no %s", source, path);
    st = usc_json_read(f, path, "not the manifest of a port", &manifest, err);
    (void)fclose(f);
    usc_json_taker t = {.name = path, .err = err};
    if (st == USC_OK) st = take_saved(&t, manifest, &file, &n, err);
    for (size_t i = 0; i < n && st == USC_OK; i++)
        st = check_one(root, &file[i], err);
    for (size_t i = 0; i < n && st == USC_OK; i++)
        st = restore_one(root, back, &file[i], err);
    if (st == USC_OK) {
        usc_folder_remove(back);
        *n_files = (int64_t)n;
    }
    free(file);
    usc_json_free(manifest);
    return st;
}
