// SPDX-License-Identifier: Apache-2.0
// Packs a trace: which calls, one worker or more, and the manifest of what they wrote.
// The folder is made beside its place and moved there when it is complete.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/folder.h"
#include "run/check.h"
#include "run/crew.h"

enum { FORMAT_VERSION = 4, PICKS_PER_JOB = 64 /* a process takes seconds to start */ };
enum { MOST_NAMED = 8 };

typedef struct packing {
    const usc_pack_run_options *options;
    const usc_run_hooks *hooks;
    usc_trace *trace;
    usc_calls *calls;
    usc_selection picks;
    usc_arena texts;
    const char **entry; /* of the manifest, by pick */
    bool *unjudged;
    const char *internal; /* the first mistake of ours; NULL: none */
    int64_t next, n_done;
    char part[USC_PATH_SIZE];
} packing;

/* ---- as work of a crew ---- */

static bool more(void *ctx)
{
    const packing *p = ctx;
    return p->next < p->picks.n;
}

static int64_t take(void *ctx)
{
    return ((packing *)ctx)->next++;
}

static void request(void *ctx, int64_t job, usc_line *to)
{
    const usc_pick *pick = &((const packing *)ctx)->picks.pick[job];
    usc_line_add(to, "{\"call\": %lld, \"stands_for\": %lld", (long long)pick->call,
                 (long long)pick->stands_for);
}

static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    packing *p = ctx;
    if (news->event != USC_CREW_ROW)
        return usc_error_set(err, USC_E_IO, -1,
                             "a process that packs %s, in a CPU kernel or for want of "
                             "memory; try -j 1, or leave its operator out with --ops",
                             news->how[0] != '\0' ? news->how : "gave no answer");
    p->entry[news->job] =
        usc_json_print_lines(usc_json_get(news->row, "entry"), &p->texts);
    p->unjudged[news->job] =
        usc_json_get(usc_json_get(news->row, "entry"), "unjudged") != NULL;
    const char *internal = usc_json_as_text(usc_json_get(news->row, "internal"));
    if (internal != NULL && p->internal == NULL)
        p->internal = usc_arena_text(&p->texts, internal);
    if (p->entry[news->job] == NULL) return usc_no_memory("pack", err);
    p->n_done++;
    if (p->hooks->progress != NULL)
        p->hooks->progress(p->hooks->ctx, "packing", p->n_done, p->picks.n, 0);
    return USC_OK;
}

/* ---- what is to be packed ---- */

static usc_status choose(packing *p, usc_error *err)
{
    const usc_pack_run_options *o = p->options;
    usc_status st =
        usc_choose_ops(p->trace, o->ops, o->distinct, &p->calls, &p->picks, err);
    if (st == USC_OK && p->picks.n == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "no call of %s matches: nothing to pack", o->trace);
    return st;
}

static int jobs_of(const packing *p)
{
    const usc_pack_run_options *o = p->options;
    const int64_t most = 1 + p->picks.n / PICKS_PER_JOB;
    int64_t jobs = o->jobs > 0 ? o->jobs : most < o->cores ? most : o->cores;
    if (jobs > p->picks.n) jobs = p->picks.n;
    return (int)jobs;
}

static void settings_of(packing *p, int jobs, usc_line *to)
{
    const usc_pack_run_options *o = p->options;
    const char *trace = usc_absolute(&p->texts, o->trace);
    const char *id = usc_trace_meta(p->trace, "id");
    usc_line_text(to, "{\"kind\": \"pack\", \"trace\": ");
    usc_line_json(to, trace != NULL ? trace : "");
    usc_line_text(to, ", \"trace_id\": ");
    usc_line_json(to, id != NULL ? id : "");
    usc_line_text(to, ", \"folder\": ");
    usc_line_json(to, p->part);
    usc_line_add(to, ", \"threads\": %d", o->cores / jobs > 0 ? o->cores / jobs : 1);
    usc_put_imports(p->trace, o->imports, o->n_imports, to);
    usc_line_text(to, "}");
}

static usc_status work_through(packing *p, bool *stopped, usc_error *err)
{
    const usc_crew_work work = {
        .ctx = p, .more = more, .take = take, .request = request, .hear = hear};
    const int jobs = jobs_of(p);
    usc_line settings = {0};
    settings_of(p, jobs, &settings);
    /* A call may take as long as it takes: nobody is under test. */
    const usc_crew_settings crew = {.text = settings.text, .size = jobs, .timeout = 1e9};
    usc_status st = settings.failed || p->texts.failed
                        ? usc_no_memory("pack", err)
                        : usc_crew_run(&crew, &work, p->hooks, stopped, err);
    usc_line_free(&settings);
    return st;
}

/* ---- the manifest ---- */

static usc_status put_head(packing *p, FILE *file, usc_error *err)
{
    const usc_pack_run_options *o = p->options;
    const char *trace = usc_absolute(&p->texts, o->trace);
    const char *id = usc_trace_meta(p->trace, "id");
    usc_line text = {0};
    usc_line_add(&text,
                 "{\n \"format\": \"ulpscope-pack\",\n \"version\": %d,\n \"trace\": ",
                 FORMAT_VERSION);
    usc_line_json(&text, trace != NULL ? trace : "");
    usc_line_text(&text, ",\n \"trace_id\": ");
    usc_line_json(&text, id != NULL ? id : "");
    usc_line_text(&text, ",\n \"ops\": ");
    usc_line_json(&text, o->ops != NULL ? o->ops : "");
    usc_line_add(&text, ",\n \"distinct\": %s,\n \"calls\": [\n",
                 o->distinct ? "true" : "false");
    const bool made = !text.failed && !p->texts.failed;
    if (made) fputs(text.text, file);
    usc_line_free(&text);
    return made ? USC_OK : usc_no_memory("pack", err);
}

/* Two levels deeper than it is by itself. */
static void put_entry(const char *text, FILE *file)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        (void)fprintf(file, "  %.*s%s", (int)n, text, text[n] != '\0' ? "\n" : "");
        text += n + (text[n] != '\0');
    }
}

static usc_status unwritten(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_IO, -1,
                         "%s: %s; nothing was packed: make room, or name another folder "
                         "with -o",
                         path, strerror(errno));
}

static usc_status write_manifest(packing *p, usc_error *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/pack.json", p->part) >= (int)sizeof path)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", p->part);
    FILE *file = fopen(path, "w");
    if (file == NULL) return unwritten(path, err);
    const usc_status st = put_head(p, file, err);
    for (int64_t i = 0; i < p->picks.n; i++) {
        put_entry(p->entry[i], file);
        fputs(i + 1 < p->picks.n ? ",\n" : "\n", file);
    }
    fputs(" ]\n}\n", file);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) return unwritten(path, err);
    return st;
}

/* ---- folders ---- */

static usc_status make_folders(packing *p, usc_error *err)
{
    usc_folder_remove(p->part);
    usc_status st = usc_folder_make(p->part, "", err);
    if (st == USC_OK) st = usc_folder_make(p->part, "/inputs", err);
    if (st == USC_OK) st = usc_folder_make(p->part, "/operands", err);
    return st;
}

/* ---- what is said ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void tell_unjudged(const packing *p, usc_line *to)
{
    const char **names = malloc((size_t)(p->picks.n + 1) * sizeof *names);
    int64_t n = 0;
    int told = 0;
    for (int64_t i = 0; names != NULL && i < p->picks.n; i++)
        if (p->unjudged[i])
            names[n++] = usc_calls_find(p->calls, p->picks.pick[i].call)->op;
    if (n > 0) {
        qsort(names, (size_t)n, sizeof *names, compare_texts);
        usc_line_text(to, "; ");
        usc_line_count(to, n);
        usc_line_text(to, n == 1 ? " has no reference: " : " have no reference: ");
    }
    for (int64_t i = 0; i < n && told < MOST_NAMED; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            usc_line_add(to, "%s%s", told++ > 0 ? ", " : "", names[i]);
    free(names);
}

static void say_packed(const packing *p)
{
    usc_line text = {0};
    usc_line_count(&text, p->picks.n);
    usc_line_add(&text, " call%s in %s", p->picks.n == 1 ? "" : "s", p->options->out);
    tell_unjudged(p, &text);
    if (p->hooks->say != NULL && text.text != NULL)
        p->hooks->say(p->hooks->ctx, text.text);
    usc_line_free(&text);
}

/* ---- the whole ---- */

static usc_status begin(packing *p, usc_error *err)
{
    usc_status st = usc_folder_part(p->options->out, p->part, err);
    if (st != USC_OK) p->part[0] = '\0';
    if (st != USC_OK) return st;
    st = usc_trace_open(p->options->trace, NULL, &p->trace, err);
    if (st == USC_OK) st = choose(p, err);
    st = usc_advise(st, NULL, err);
    if (st != USC_OK) return st;
    const size_t n = (size_t)p->picks.n + 1;
    p->entry = usc_arena_take(&p->texts, n * sizeof *p->entry);
    p->unjudged = usc_arena_take(&p->texts, n * sizeof *p->unjudged);
    return p->texts.failed ? usc_no_memory("pack", err) : make_folders(p, err);
}

static usc_status pack_all(packing *p, usc_run_end *end, usc_error *err)
{
    bool stopped = false;
    usc_status st = work_through(p, &stopped, err);
    *end = stopped ? USC_RUN_INTERRUPTED : USC_RUN_DONE;
    if (st == USC_OK && !stopped) st = write_manifest(p, err);
    if (st == USC_OK && !stopped) st = usc_folder_flush(p->part, err);
    if (st == USC_OK && !stopped && rename(p->part, p->options->out) != 0)
        st = unwritten(p->options->out, err);
    if (st == USC_OK && !stopped) say_packed(p);
    if (st == USC_OK && !stopped && p->internal != NULL)
        st = usc_error_set(err, USC_E_UNSUPPORTED, -1, "%s is packed, without a call: %s",
                           p->options->out, p->internal);
    return st;
}

usc_status usc_pack_trace(const usc_pack_run_options *options, const usc_run_hooks *hooks,
                          usc_run_end *end, usc_error *err)
{
    usc_error own;
    if (err == NULL) err = &own;
    packing p = {.options = options, .hooks = hooks, .texts = {.alloc = usc_libc_alloc}};
    *end = USC_RUN_DONE;
    usc_status st = begin(&p, err);
    if (st == USC_OK) st = pack_all(&p, end, err);
    if (p.part[0] != '\0') usc_folder_remove(p.part);
    usc_selection_free(&p.picks);
    usc_calls_free(p.calls);
    usc_trace_close(p.trace);
    usc_arena_free(&p.texts);
    return st;
}
