// SPDX-License-Identifier: Apache-2.0
// What a check tells of itself: to the results which run it is, to the workers what they
// work with and on.
#include <limits.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "run/check.h"

#define SHARE 0.75 /* of the memory that is free at the start */

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static const char *kept(usc_arena *arena, usc_line *line)
{
    arena->failed |= line->failed;
    char *copy = line->failed ? NULL : usc_arena_take(arena, line->n + 1);
    if (copy != NULL) memcpy(copy, line->text != NULL ? line->text : "", line->n + 1);
    usc_line_free(line);
    return copy;
}

/* ---- which run it is ---- */

static void list_texts(const char *const *texts, int n, usc_line *to)
{
    usc_line_text(to, "[");
    for (int i = 0; i < n; i++) {
        if (i > 0) usc_line_text(to, ", ");
        usc_line_json(to, texts[i]);
    }
    usc_line_text(to, "]");
}

static void put_numbers(const int64_t *numbers, int64_t n, usc_line *to)
{
    usc_line_text(to, "[");
    for (int64_t i = 0; i < n; i++)
        usc_line_add(to, "%s%lld", i > 0 ? ", " : "", (long long)numbers[i]);
    usc_line_text(to, "]");
}

void usc_put_text(const char *name, const char *value, usc_line *to)
{
    usc_line_add(to, ", \"%s\": ", name);
    usc_line_json(to, or_empty(value));
}

const char *usc_kept_text(usc_arena *arena, const char *text)
{
    return or_empty(usc_arena_text(arena, or_empty(text)));
}

const char *usc_said_text(usc_arena *arena, const usc_json *said, const char *key)
{
    return usc_kept_text(arena, usc_json_as_text(usc_json_get(said, key)));
}

static void put_text(const char *name, const char *value, usc_line *to)
{
    if (or_empty(value)[0] != '\0') usc_put_text(name, value, to);
}

static void put_fuzz(const usc_fuzz_options *f, usc_line *to)
{
    usc_line_add(to, ", \"seed\": %llu, \"stress\": %s", (unsigned long long)f->seed,
                 f->stress ? "true" : "false");
    if (f->signatures) usc_line_text(to, ", \"signatures\": true");
    if (f->relations) usc_line_text(to, ", \"relations\": true");
    if (f->programs) usc_line_text(to, ", \"programs\": true");
}

/* What is at its default stands for nothing: a run of an earlier version is the same. */
const char *usc_check_option_text(usc_check *c)
{
    const usc_check_options *o = c->options;
    usc_line to = {0};
    usc_line_text(&to, "{\"ops\": ");
    usc_line_json(&to, or_empty(o->ops));
    usc_line_add(&to, ", \"distinct\": %s, \"import\": ", o->distinct ? "true" : "false");
    list_texts(o->imports, o->n_imports, &to);
    if (o->compare_standards) usc_line_text(&to, ", \"compare_standards\": true");
    if (o->call > 0) usc_line_add(&to, ", \"call\": %lld", (long long)o->call);
    if (o->calls != NULL) {
        usc_line_text(&to, ", \"calls\": ");
        put_numbers(o->calls, o->n_calls, &to);
    }
    put_text("module", o->module, &to);
    put_text("phase", o->phase, &to);
    put_text("step", o->step, &to);
    if (o->fuzz != NULL) put_fuzz(o->fuzz, &to);
    if (o->level != USC_LEVEL_CALL)
        put_text("level", o->level == USC_LEVEL_API ? "api" : "module", &to);
    if (o->bisect) usc_line_text(&to, ", \"bisect\": true");
    if (o->timeout > 0 && (o->timeout < USC_RUN_TIMEOUT || o->timeout > USC_RUN_TIMEOUT))
        usc_line_add(&to, ", \"timeout\": %.17g", o->timeout);
    if (o->repeat > 0 && o->repeat != USC_RUN_REPEAT)
        usc_line_add(&to, ", \"repeat\": %d", o->repeat);
    usc_line_text(&to, "}");
    return kept(&c->texts, &to);
}

/* What the report says of the machine; the first worker adds what it knows. */
static const char *environment_of(usc_check *c)
{
    struct utsname system = {0};
    usc_line to = {0};
    (void)uname(&system);
    usc_line_text(&to, "{\"system\": ");
    usc_line_json(&to, system.sysname);
    usc_line_text(&to, ", \"machine\": ");
    usc_line_json(&to, system.machine);
    usc_line_add(&to, ", \"cores\": %d, \"ulpscope\": ", c->options->cores);
    usc_line_json(&to, or_empty(c->options->version));
    usc_line_text(&to, "}");
    return kept(&c->texts, &to);
}

const char *usc_absolute(usc_arena *arena, const char *path)
{
    char folder[PATH_MAX] = "";
    usc_line to = {0};
    if (path[0] != '/' && getcwd(folder, sizeof folder) != NULL)
        usc_line_add(&to, "%s/", strcmp(folder, "/") == 0 ? "" : folder);
    while (strncmp(path, "./", 2) == 0)
        path += 1 + strspn(path + 1, "/");
    usc_line_text(&to, strcmp(path, ".") == 0 ? "" : path);
    while (to.n > 1 && to.text[to.n - 1] == '/')
        to.text[--to.n] = '\0';
    return kept(arena, &to);
}

usc_status usc_check_open_result(usc_check *c, usc_error *err)
{
    const usc_check_options *o = c->options;
    usc_line device = {0};
    usc_line_text(&device, o->device);
    if (or_empty(o->via)[0] != '\0') usc_line_add(&device, " via %s", o->via);
    const char *id = usc_trace_meta(c->trace, "id");
    usc_line id_text = {0};
    if (o->fuzz != NULL)
        usc_line_add(&id_text, "cases of seed %llu, drawn from ",
                     (unsigned long long)o->fuzz->seed);
    usc_line_text(&id_text, or_empty(id));
    const usc_run run = {.trace = usc_absolute(&c->texts, o->trace),
                         .trace_id = kept(&c->texts, &id_text),
                         .device = kept(&c->texts, &device),
                         .standard = o->standard != NULL ? o->standard : "ulpscope",
                         .faults = or_empty(o->faults),
                         .options = usc_check_option_text(c),
                         .environment = environment_of(c),
                         .goes_on = o->fuzz != NULL};
    usc_line part = {0};
    usc_line_text(&part, o->out);
    if (usc_check_is_part(c)) usc_line_add(&part, "/part-%d", c->hooks->ranks->rank);
    const char *folder = kept(&c->texts, &part);
    if (c->texts.failed) return usc_error_set(err, USC_E_NOMEM, -1, "check: no memory");
    return usc_result_create(folder, &run, o->force || usc_check_is_part(c), &c->result,
                             err);
}

/* ---- what workers are told ---- */

int64_t usc_check_memory(const usc_check *c)
{
    if (c->options->memory > 0) return c->options->memory;
    return (int64_t)(SHARE * (double)usc_memory_free());
}

void usc_put_imports(usc_trace *trace, const char *const *imports, int n, usc_line *to)
{
    const char *text = usc_trace_meta(trace, "imports");
    usc_line_add(to, ", \"recorded\": %s, \"imports\": ",
                 text != NULL && text[0] == '[' ? text : "[]");
    list_texts(imports, n, to);
}

void usc_check_settings(usc_check *c, int jobs, int64_t memory, usc_line *to)
{
    const usc_check_options *o = c->options;
    const int share = o->cores / jobs > 0 ? o->cores / jobs : 1;
    const struct {
        const char *name, *value;
    } texts[] = {{"trace", usc_absolute(&c->texts, o->trace)},
                 {"trace_id", usc_trace_meta(c->trace, "id")},
                 {"device", o->runs_on != NULL ? o->runs_on : o->device},
                 {"via", o->via},
                 {"home", c->picks.home},
                 {"standard", o->standard != NULL ? o->standard : "ulpscope"}};
    usc_line_text(to, "{\"kind\": \"check\"");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        usc_line_add(to, ", \"%s\": ", texts[i].name);
        usc_line_json(to, or_empty(texts[i].value));
    }
    usc_line_add(to, ", \"threads\": %d", o->threads > 0 ? o->threads : share);
    usc_line_add(to, ", \"memory\": %lld", (long long)(memory / jobs));
    usc_put_imports(c->trace, o->imports, o->n_imports, to);
    usc_line_text(to, ", \"compare\": ");
    if (o->compared != NULL)
        usc_line_json(to, o->compared);
    else
        usc_line_text(to, o->compare_standards ? "true" : "false");
    usc_line_add(to, ", \"causes\": %.17g, \"repeat\": %d", o->causes,
                 o->repeat > 0 ? o->repeat : USC_RUN_REPEAT);
    if (o->bisect) usc_line_text(to, ", \"bisect\": true");
    if (o->fuzz != NULL) put_fuzz(o->fuzz, to);
    usc_line_text(to, "}");
}

/* What a compiler made of a whole is not looked for in its parts: they would all have to
 * be compiled as well. */
static void request_forward(const usc_pick *pick, bool compiled, usc_line *to)
{
    const usc_forward *f = pick->forward;
    usc_line_text(to, ", \"children\": ");
    put_numbers(f->call, compiled ? 0 : f->n_calls, to);
    usc_line_text(to, ", \"module\": {\"calls\": ");
    put_numbers(f->call, f->n_calls, to);
    usc_line_text(to, ", \"kept\": ");
    put_numbers(f->kept, f->n_kept, to);
    usc_line_add(to,
                 ", \"source\": {\"sequence\": %lld, \"op\": ", (long long)pick->call);
    usc_line_json(to, f->op);
    usc_line_text(to, "}}");
}

void usc_check_request(const usc_pick *pick, bool compiled, usc_line *to)
{
    usc_line_add(to, "{\"call\": %lld", (long long)pick->call);
    if (pick->forward != NULL) {
        request_forward(pick, compiled, to);
        return;
    }
    usc_line_text(to, ", \"children\": ");
    put_numbers(pick->child, pick->n_children, to);
    usc_line_text(to, ", \"backward\": {");
    for (int64_t i = 0; i < pick->n_backward; i++) {
        const usc_backward *b = &pick->backward[i];
        usc_line_add(to, "%s\"%lld\": ", i > 0 ? ", " : "", (long long)b->of);
        put_numbers(b->call, b->n, to);
    }
    usc_line_text(to, "}");
}

bool usc_check_is_part(const usc_check *c)
{
    return c->hooks->ranks != NULL && c->hooks->ranks->rank > 0;
}
