// SPDX-License-Identifier: Apache-2.0
// One entry of a tree: read, ported, and what came of it kept. Neighbours: port.c (the
// whole), port_write.c and port_in_place.c (where it goes).
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "port/port_tree.h"

static int by_line(const void *a, const void *b)
{
    const usc_port_left *x = a, *y = b;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* A place in the result; NULL without memory. */
usc_port_file *usc_port_add_file(usc_port_run_state *s, const usc_port_entry *e)
{
    if (s->result.n_files == s->files_size) {
        usc_port_file *grown = usc_arena_grow(&s->kept, s->file, s->result.n_files,
                                              &s->files_size, sizeof *s->file);
        if (grown == NULL) return NULL;
        s->file = grown;
        s->result.file = grown;
    }
    usc_port_file *f = &s->file[s->result.n_files++];
    *f = (usc_port_file){
        .path = e->path, .to = e->to, .language = e->language, .diff = ""};
    return f;
}

static void keep_left(usc_port_run_state *s, usc_port_file *f, const usc_port_left *left,
                      size_t n)
{
    usc_port_left *kept = usc_arena_take(&s->kept, (n + 1) * sizeof *kept);
    if (kept == NULL) return;
    for (size_t i = 0; i < n; i++)
        kept[i] =
            (usc_port_left){left[i].line, usc_arena_text(&s->kept, left[i].construct),
                            usc_arena_text(&s->kept, left[i].excerpt),
                            usc_arena_text(&s->kept, left[i].advice)};
    if (s->kept.failed) return;
    size_t sorted = 1;
    while (sorted < n && kept[sorted - 1].line <= kept[sorted].line)
        sorted++;
    if (sorted < n) qsort(kept, n, sizeof *kept, by_line);
    f->left = kept;
    f->n_left = n;
    s->result.n_left += (int64_t)n;
}

/* What a job came to, into the result. */
static usc_status keep(usc_port_run_state *s, const usc_port_entry *e, usc_port_job *job,
                       int64_t changes, usc_error *err)
{
    const bool renamed = strcmp(e->path, e->to) != 0;
    s->result.n_seen++;
    s->result.n_renamed += renamed;
    s->result.n_changed += changes > 0;
    s->result.n_changes += changes;
    if (e->refused != NULL) usc_port_leave_at(job, 0, e->refused, "", "is left as it is");
    if (changes > 0 || renamed || job->n_left > 0) {
        usc_port_file *f = usc_port_add_file(s, e);
        if (f == NULL) return usc_no_memory(e->path, err);
        f->n_changes = changes;
        keep_left(s, f, job->left, job->n_left);
        if (s->options->diff && changes > 0)
            f->diff = usc_arena_text(&s->kept, usc_port_diff(job, e->to));
    }
    return job->failed || s->kept.failed || s->scratch.failed
               ? usc_no_memory(e->path, err)
               : USC_OK;
}

usc_port_job usc_port_job_of(usc_port_run_state *s, const usc_port_entry *e,
                             const char *bytes, size_t size)
{
    return (usc_port_job){.options = s->options,
                          .names = &s->names,
                          .renames = &s->renames,
                          .terms = &s->terms,
                          .own_names = s->options->rename_own ? &s->own : NULL,
                          .path = e->path,
                          .root = s->root[0] != '\0' ? s->root : NULL,
                          .arena = &s->scratch,
                          .text = bytes,
                          .n = size};
}

/* The bytes of a file of the source. */
static usc_status read_entry(usc_port_run_state *s, const usc_port_entry *e, char **bytes,
                             size_t *size, mode_t *mode, usc_error *err)
{
    char path[USC_PATH_SIZE];
    struct stat about = {0};
    usc_status st = usc_path_join(path, s->root, e->path, err);
    if (st == USC_OK) st = usc_port_read(path, &s->scratch, bytes, size, &about, err);
    *mode = about.st_mode;
    return st;
}

usc_status usc_port_learn(usc_port_run_state *s, const usc_port_entry *e, usc_error *err)
{
    char *bytes;
    size_t size;
    mode_t mode;
    int64_t changes;
    usc_arena_reset(&s->scratch);
    usc_port_terms_trim(&s->terms);
    if (e->refused != NULL || e->what != USC_PORT_FILE ||
        (e->language != USC_PORT_CXX && e->language != USC_PORT_PYTHON))
        return USC_OK;
    usc_status st = read_entry(s, e, &bytes, &size, &mode, err);
    if (st != USC_OK) return st;
    usc_port_job job = usc_port_job_of(s, e, bytes, size);
    job.learns = true;
    (void)usc_port_run(&job, e->language, &size, &changes);
    if (job.failed || s->own.failed || s->scratch.failed)
        st = usc_no_memory(e->path, err);
    usc_port_job_close(&job);
    return st;
}

usc_status usc_port_one(usc_port_run_state *s, const usc_port_entry *e, const char *bytes,
                        size_t size, usc_port_done *done, usc_error *err)
{
    usc_port_job job = usc_port_job_of(s, e, bytes, size);
    int64_t changes = 0;
    *done = (usc_port_done){.size = size};
    if (e->refused == NULL && e->what == USC_PORT_FILE)
        done->bytes = usc_port_run(&job, e->language, &done->size, &changes);
    done->changed = done->bytes != NULL;
    if (!done->changed) done->bytes = bytes;
    const usc_status st = keep(s, e, &job, changes, err);
    usc_port_job_close(&job);
    return st;
}

usc_status usc_port_entry_run(usc_port_run_state *s, const usc_port_entry *e,
                              usc_port_done *done, usc_error *err)
{
    char *bytes;
    size_t size;
    *done = (usc_port_done){0};
    if (e->what == USC_PORT_FOLDER) return USC_OK;
    usc_arena_reset(&s->scratch);
    usc_port_terms_trim(&s->terms);
    mode_t mode = 0;
    if (e->language == USC_PORT_OTHER || e->refused != NULL || e->what == USC_PORT_LINK) {
        const usc_status st = usc_port_one(s, e, "", 0, done, err);
        done->bytes = NULL;
        return st;
    }
    usc_status st = read_entry(s, e, &bytes, &size, &mode, err);
    if (st == USC_OK) st = usc_port_one(s, e, bytes, size, done, err);
    done->mode = mode;
    return st;
}
