// SPDX-License-Identifier: Apache-2.0
// Files of operators: looked at, and written as C++.
#include <ulpscope/x/ops.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/path.h"
#include "ops/ops_book.h"

/* ---- what it came to */

typedef struct kept_result {
    usc_ops_result result; /* first: freed as this */
    usc_arena arena;
} kept_result;

static int by_place(const void *a, const void *b)
{
    const usc_ops_problem *x = a, *y = b;
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

static const usc_ops_problem *keep_problems(usc_arena *a, const usc_ops_problem *from,
                                            size_t n)
{
    usc_ops_problem *kept = usc_arena_take(a, (n + 1) * sizeof *kept);
    for (size_t i = 0; kept != NULL && i < n; i++)
        kept[i] = (usc_ops_problem){from[i].line, from[i].column,
                                    usc_arena_text(a, from[i].text)};
    if (kept != NULL && n > 1) qsort(kept, n, sizeof *kept, by_place);
    return kept;
}

static const usc_ops_operator *keep_operators(usc_arena *a, const usc_ops_book *b)
{
    usc_ops_operator *kept = usc_arena_take(a, (b->n + 1) * sizeof *kept);
    for (size_t i = 0; kept != NULL && i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        usc_line name = {0};
        usc_line_add(&name, "%s::%s", e->space, e->name);
        kept[i] =
            (usc_ops_operator){name.text != NULL ? usc_arena_text(a, name.text) : NULL,
                               e->kind, e->node->line};
        if (kept[i].name == NULL) a->failed = true;
        usc_line_free(&name);
    }
    return kept;
}

static usc_status keep(const usc_ops_book *b, usc_ops_result **out, usc_error *err)
{
    kept_result *k = calloc(1, sizeof *k);
    if (k == NULL) return usc_no_memory(b->path, err);
    k->arena.alloc = usc_libc_alloc;
    k->result = (usc_ops_result){
        .op = keep_operators(&k->arena, b),
        .n = b->n,
        .problem = keep_problems(&k->arena, b->problem, b->n_problems),
        .n_problems = b->n_problems,
        .left_out = keep_problems(&k->arena, b->left_out, b->n_left_out),
        .n_left_out = b->n_left_out,
    };
    *out = &k->result;
    if (!k->arena.failed) return USC_OK;
    usc_ops_free(&k->result);
    *out = NULL;
    return usc_no_memory(b->path, err);
}

void usc_ops_free(usc_ops_result *result)
{
    if (result == NULL) return;
    kept_result *k = (kept_result *)(void *)result;
    usc_arena_free(&k->arena);
    free(k);
}

/* ---- writing */

static bool holds_already(const char *path, const usc_line *text)
{
    FILE *f = fopen(path, "rb");
    char part[4096];
    size_t at = 0, n = 0;
    if (f == NULL) return false;
    bool same = true;
    while (same && (n = fread(part, 1, sizeof part, f)) > 0) {
        same = at + n <= text->n && memcmp(text->text + at, part, n) == 0;
        at += n;
    }
    same = same && at == text->n && ferror(f) == 0;
    (void)fclose(f);
    return same;
}

/* A file whose bytes stay is not touched: nothing that is made of it is made anew. */
static usc_status put_file(const char *folder, const char *name, const usc_line *text,
                           usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_status st = usc_path_join(path, folder, name, err);
    if (st != USC_OK || holds_already(path, text)) return st;
    FILE *f = fopen(path, "wb");
    const bool written = f != NULL && fwrite(text->text, 1, text->n, f) == text->n;
    if ((f != NULL && fclose(f) != 0) || !written)
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
    return USC_OK;
}

static void put_paths(usc_line *l, const usc_ops_options *options)
{
    usc_line_text(l, "");
    for (size_t i = 0; i < options->n_source; i++) {
        char *path = realpath(options->source[i], NULL);
        usc_line_add(l, "%s\n", path != NULL ? path : options->source[i]);
        free(path);
    }
}

static usc_status generate(const usc_ops_book *b, const char *folder,
                           const usc_ops_options *options, usc_error *err)
{
    usc_line header = {0}, c_header = {0}, source = {0}, paths = {0};
    usc_ops_write(b, options, &header, &c_header, &source);
    put_paths(&paths, options);
    usc_line_text(&paths, "\n");
    usc_status st = header.failed || c_header.failed || source.failed || paths.failed
                        ? usc_no_memory(folder, err)
                        : usc_folder_make(folder, "", err);
    if (st == USC_OK) st = put_file(folder, "sim_ops.h", &header, err);
    if (st == USC_OK && usc_ops_has_c(b))
        st = put_file(folder, "sim_ops_c.h", &c_header, err);
    if (st == USC_OK) st = put_file(folder, "sim_ops.cpp", &source, err);
    if (st == USC_OK) st = put_file(folder, "sources.txt", &paths, err);
    usc_line_free(&header);
    usc_line_free(&c_header);
    usc_line_free(&source);
    usc_line_free(&paths);
    return st;
}

static usc_status run(const char *path, const char *folder,
                      const usc_ops_options *options, usc_ops_result **out,
                      usc_error *err)
{
    usc_ops_book native, own = {.lenient = options->lenient};
    *out = NULL;
    usc_status st = usc_ops_read_native(&native, options->native, err);
    if (st == USC_OK) st = usc_ops_read_device(&own, &native, path, err);
    if (st == USC_OK) {
        usc_ops_plan(&own, &native, options);
        if (own.arena.failed) st = usc_no_memory(path, err);
    }
    if (st == USC_OK && folder != NULL && own.n_problems == 0)
        st = generate(&own, folder, options, err);
    if (st == USC_OK) st = keep(&own, out, err);
    usc_ops_book_free(&native);
    usc_ops_book_free(&own);
    return st;
}

usc_status usc_ops_check(const char *path, const usc_ops_options *options,
                         usc_ops_result **out, usc_error *err)
{
    return run(path, NULL, options, out, err);
}

usc_status usc_ops_generate(const char *path, const char *folder,
                            const usc_ops_options *options, usc_ops_result **out,
                            usc_error *err)
{
    return run(path, folder, options, out, err);
}
