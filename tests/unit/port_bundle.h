// SPDX-License-Identifier: Apache-2.0
// A case of tests/port: one file that holds a source folder, the targets to which it is
// ported, and what each gives: the files that change or get another name, and what is
// left. A section begins with a line `==== WHERE PATH`; a dash behind it: the last newline
// is the section's own, not the file's. `test_port --rewrite` writes what it gives today;
// look at the diff.
#ifndef USC_TESTS_PORT_BUNDLE_H
#define USC_TESTS_PORT_BUNDLE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/x/port.h>

#include "base/folder.h"
#include "base/line.h"

static inline char *bundle_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    *size = 0;
    if (f == NULL) return NULL;
    char *text = malloc((size_t)1 << 20);
    *size = text != NULL ? fread(text, 1, ((size_t)1 << 20) - 1, f) : 0;
    if (text != NULL) text[*size] = '\0';
    (void)fclose(f);
    return text;
}

static inline bool bundle_write(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL) return false;
    const bool fine = fwrite(bytes, 1, n, f) == n;
    return fclose(f) == 0 && fine;
}

/* Calls `take` for each section. */
static inline void bundle_walk(const char *text, size_t size,
                               void (*take)(void *ctx, const char *where,
                                            const char *path, const char *bytes,
                                            size_t n),
                               void *ctx)
{
    const char *at = strstr(text, "==== ");
    while (at != NULL) {
        char where[16], path[256], dash[2] = "";
        const char *body = strchr(at, '\n') + 1;
        if (sscanf(at, "==== %15s %255s", where, path) != 2) return;
        if (body[-2] == '-' && body[-3] == ' ') dash[0] = '-';
        const char *next = strstr(body - 1, "\n==== ");
        size_t n = (size_t)((next != NULL ? next + 1 : text + size) - body);
        if (dash[0] == '-' && n > 0) n--;
        take(ctx, where, path, body, n);
        at = next != NULL ? next + 1 : NULL;
    }
}

static inline void bundle_put(usc_line *to, const char *where, const char *path,
                              const char *bytes, size_t n)
{
    const bool whole = n > 0 && bytes[n - 1] == '\n';
    usc_line_add(to, "==== %s %s%s\n", where, path, whole ? "" : " -");
    usc_line_put(to, bytes, n);
    if (!whole) usc_line_text(to, "\n");
}

typedef struct bundle_place {
    const char *root;
    usc_line *out;
    bool failed;
} bundle_place;

static inline void bundle_unpack(void *ctx, const char *where, const char *path,
                                 const char *bytes, size_t n)
{
    bundle_place *p = ctx;
    char full[1024], *last;
    if (strcmp(where, "src") != 0) return;
    (void)snprintf(full, sizeof full, "%s/%s", p->root, path);
    last = strrchr(full, '/');
    *last = '\0';
    p->failed |= usc_folder_make(full, "", NULL) != USC_OK;
    *last = '/';
    p->failed |= !bundle_write(full, bytes, n);
    if (p->out != NULL) bundle_put(p->out, "src", path, bytes, n);
}

/* Whether the first line of a case has the word. */
static inline bool bundle_says(const char *first, const char *word)
{
    const char *found = strstr(first, word);
    return found != NULL && found < first + strcspn(first, "\n");
}

/* What a port of `root` gives, as sections. */
static inline void bundle_render(const char *root, usc_port_target target,
                                 const char *first, usc_line *to)
{
    const char *name = usc_port_target_text(target);
    const usc_port_options o = {.target = target,
                                .comments = bundle_says(first, "--comments"),
                                .launch =
                                    bundle_says(first, "--launch") ? "launch.py" : NULL,
                                .rename_own = bundle_says(first, "--rename-own")};
    char out[1024], full[2048];
    usc_port_result *r;
    usc_error err;
    (void)snprintf(out, sizeof out, "%s_%s", root, name);
    usc_folder_remove(out);
    if (usc_port_tree(root, &o, &r, &err) != USC_OK) {
        usc_line_add(to, "==== %s error\n%s\n", name, err.text);
        return;
    }
    usc_line_add(to, "==== %s left\n", name);
    for (size_t i = 0; i < r->n_files; i++)
        for (size_t k = 0; k < r->file[i].n_left; k++) {
            const usc_port_left *l = &r->file[i].left[k];
            usc_line_add(to, "%s:%lld: %s: %s\n", r->file[i].path, (long long)l->line,
                         l->construct, l->excerpt);
        }
    for (size_t i = 0; i < r->n_files; i++) {
        const usc_port_file *f = &r->file[i];
        size_t n;
        if (f->n_changes == 0 && strcmp(f->path, f->to) == 0) continue;
        (void)snprintf(full, sizeof full, "%s/%s", out, f->to);
        char *bytes = bundle_read(full, &n);
        if (bytes != NULL) bundle_put(to, name, f->to, bytes, n);
        free(bytes);
    }
    usc_port_free(r);
    usc_folder_remove(out);
}

/* The text of a case as it is today: its sources as they are, and what they give. */
static inline void bundle_today(const char *text, size_t size, const char *root,
                                usc_line *to)
{
    bundle_place p = {root, to, false};
    const size_t head = strcspn(text, "\n") + 1;
    usc_line_put(to, text, head);
    usc_folder_remove(root);
    bundle_walk(text, size, bundle_unpack, &p);
    for (usc_port_target t = 0; t < USC_N_PORT_TARGETS; t++) {
        if (bundle_says(text, usc_port_target_text(t))) bundle_render(root, t, text, to);
    }
}

#endif
