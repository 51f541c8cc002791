// SPDX-License-Identifier: Apache-2.0
// The ports of whole sources, and what they came to.
#include <ulpscope/x/port.h>

#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "port/port_tree.h"

static usc_status open_state(const usc_port_options *options, usc_port_run_state **out,
                             usc_error *err)
{
    usc_port_run_state *s = calloc(1, sizeof *s);
    *out = s;
    if (s == NULL) return usc_no_memory("a port", err);
    s->kept.alloc = s->scratch.alloc = s->terms.arena.alloc = usc_libc_alloc;
    s->options = options;
    s->result.out = "";
    return usc_port_names_open(&s->names, &s->kept, options, err);
}

static usc_status hand_over(usc_port_run_state *s, usc_status st, usc_port_result **out,
                            usc_error *err)
{
    if (s == NULL) return st;
    usc_port_names_close(&s->names);
    usc_keys_free(&s->renames.ends);
    usc_keys_free(&s->renames.globs);
    usc_port_own_free(&s->own);
    usc_keys_free(&s->terms.at);
    usc_arena_free(&s->terms.arena);
    usc_arena_free(&s->scratch);
    if (st == USC_OK && s->kept.failed) st = usc_no_memory("a port", err);
    if (st == USC_OK)
        *out = &s->result;
    else
        usc_port_free(&s->result);
    return st;
}

/* A folder or file without anything that can be ported is no ported one. */
static usc_status need_source(const usc_port_run_state *s, const char *source,
                              usc_error *err)
{
    for (size_t i = 0; i < s->n_entries; i++)
        if (s->entry[i].language != USC_PORT_OTHER || s->entry[i].refused != NULL)
            return USC_OK;
    return usc_error_set(err, USC_E_NOT_FOUND, -1,
                         "%s: no source to port: C++, CUDA, Python, notebooks and what "
                         "builds them are known by their names' endings",
                         source);
}

usc_status usc_port_tree(const char *source, const usc_port_options *options,
                         usc_port_result **out, usc_error *err)
{
    usc_port_run_state *s;
    *out = NULL;
    usc_status st = open_state(options, &s, err);
    if (st == USC_OK) st = usc_port_walk(s, source, err);
    if (st == USC_OK) st = need_source(s, source, err);
    for (size_t i = 0; st == USC_OK && options->rename_own && i < s->n_entries; i++)
        st = usc_port_learn(s, &s->entry[i], err);
    if (st == USC_OK)
        st = options->in_place ? usc_port_in_place(s, source, err)
                               : usc_port_to_folder(s, err);
    return hand_over(s, st, out, err);
}

/* The one file of usc_port_bytes. */
static usc_status run_bytes(usc_port_run_state *s, const char *name, const void *data,
                            size_t size, usc_error *err)
{
    usc_port_done done;
    char *bytes = usc_arena_take(&s->scratch, size + 1);
    usc_port_entry e = {.path = usc_arena_text(&s->kept, name),
                        .language = usc_port_language_of(name, s->options->target)};
    e.to = e.path;
    if (bytes == NULL || e.path == NULL) return usc_no_memory(name, err);
    if (size > 0) memcpy(bytes, data, size);
    bytes[size] = '\0';
    if (s->options->rename_own) {
        int64_t changes;
        size_t same;
        usc_port_job job = usc_port_job_of(s, &e, bytes, size);
        job.learns = true;
        (void)usc_port_run(&job, e.language, &same, &changes);
        usc_port_job_close(&job);
    }
    usc_status st = usc_port_one(s, &e, bytes, size, &done, err);
    if (st != USC_OK) return st;
    usc_port_file *f = s->result.n_files > 0 ? s->file : usc_port_add_file(s, &e);
    char *after = usc_arena_take(&s->kept, done.size + 1);
    if (f == NULL || after == NULL) return usc_no_memory(name, err);
    memcpy(after, done.changed ? done.bytes : bytes, done.size);
    after[done.size] = '\0';
    f->after = after;
    f->after_size = done.size;
    return USC_OK;
}

usc_status usc_port_bytes(const char *name, const void *data, size_t size,
                          const usc_port_options *options, usc_port_result **out,
                          usc_error *err)
{
    usc_port_run_state *s;
    *out = NULL;
    usc_status st = open_state(options, &s, err);
    if (st == USC_OK) st = run_bytes(s, name, data, size, err);
    return hand_over(s, st, out, err);
}

void usc_port_free(usc_port_result *result)
{
    if (result == NULL) return;
    usc_port_run_state *s = (usc_port_run_state *)(void *)result;
    usc_arena_free(&s->kept);
    free(s);
}

/* ---- JSON */

static void put_text(usc_line *l, const char *key, const char *text)
{
    usc_line_add(l, "\"%s\": ", key);
    usc_line_json(l, text);
}

static void put_file(usc_line *l, const usc_port_file *f)
{
    usc_line_text(l, "{");
    put_text(l, "path", f->path);
    usc_line_text(l, ", ");
    put_text(l, "to", f->to);
    usc_line_add(l, ", \"language\": \"%s\", \"changes\": %lld, \"left\": [",
                 usc_port_language_text(f->language), (long long)f->n_changes);
    for (size_t i = 0; i < f->n_left; i++) {
        usc_line_add(l, "%s{\"line\": %lld, ", i > 0 ? ", " : "",
                     (long long)f->left[i].line);
        put_text(l, "construct", f->left[i].construct);
        usc_line_text(l, ", ");
        put_text(l, "excerpt", f->left[i].excerpt);
        usc_line_text(l, ", ");
        put_text(l, "advice", f->left[i].advice);
        usc_line_text(l, "}");
    }
    usc_line_text(l, "]}");
}

usc_status usc_port_json(const usc_port_result *r, const usc_port_options *options,
                         FILE *to, usc_error *err)
{
    usc_line l = {0};
    usc_line_add(&l, "{\"version\": 1, \"target\": \"%s\", ",
                 usc_port_target_text(options->target));
    put_text(&l, "out", r->out);
    usc_line_add(&l,
                 ", \"seen\": %lld, \"changed\": %lld, \"renamed\": %lld, \"changes\": "
                 "%lld, \"n_left\": %lld, \"files\": [",
                 (long long)r->n_seen, (long long)r->n_changed, (long long)r->n_renamed,
                 (long long)r->n_changes, (long long)r->n_left);
    for (size_t i = 0; i < r->n_files; i++) {
        if (i > 0) usc_line_text(&l, ", ");
        put_file(&l, &r->file[i]);
    }
    usc_line_text(&l, "]}\n");
    usc_status st = l.failed ? usc_no_memory("a port", err) : USC_OK;
    if (st == USC_OK && fwrite(l.text, 1, l.n, to) != l.n)
        st = usc_error_set(err, USC_E_IO, -1, "cannot be written");
    usc_line_free(&l);
    return st;
}
