// SPDX-License-Identifier: Apache-2.0
// `--self-test`: workers plant mistakes into right results, one call of each signature;
// here it is put together by operator: the least that any of them would have caught.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/check.h"
#include "run/crew.h"

/* The kinds of mistakes that have a size, and those that are caught or not. */
static const char *const sized[] = {"element", "factor", "noise"};
static const char *const lists[] = {"caught", "idle", "unseen"};

enum { N_SIZED = 3, N_LISTS = 3, CAUGHT = 0, UNSEEN = 2 };

typedef struct text_item {
    struct text_item *next;
    const char *text;
} text_item;

typedef struct op_sum {
    struct op_sum *next; /* by name */
    const char *op;
    int64_t calls;
    const char *skipped; /* why, the first time; NULL: never */
    bool probed;
    double bits[N_SIZED]; /* 0: not even the largest; negative: not yet known */
    text_item *list[N_LISTS];
} op_sum;

typedef struct self_test {
    usc_check *check;
    usc_arena arena;
    op_sum *sums;
    int64_t n, next, n_done;
    int64_t *call; /* one of each signature */
} self_test;

static op_sum *sum_of(self_test *s, const char *op)
{
    op_sum **at = &s->sums;
    while (*at != NULL && strcmp((*at)->op, op) < 0)
        at = &(*at)->next;
    if (*at != NULL && strcmp((*at)->op, op) == 0) return *at;
    op_sum *made = usc_arena_take(&s->arena, sizeof *made);
    if (made == NULL) return NULL;
    *made = (op_sum){.next = *at, .op = op, .bits = {-1, -1, -1}};
    *at = made;
    return made;
}

/* Adds a text that is not there, at the end. */
static void add_text(self_test *s, text_item **list, const char *text)
{
    while (*list != NULL) {
        if (strcmp((*list)->text, text) == 0) return;
        list = &(*list)->next;
    }
    text_item *item = usc_arena_take(&s->arena, sizeof *item);
    const char *copy = usc_arena_text(&s->arena, text);
    if (item == NULL || copy == NULL) return; /* the arena knows */
    *item = (text_item){.text = copy};
    *list = item;
}

static bool is_in(const text_item *list, const char *text)
{
    for (; list != NULL; list = list->next)
        if (strcmp(list->text, text) == 0) return true;
    return false;
}

/* What one call would have caught: caught is what no call let pass. */
static void merge(self_test *s, op_sum *sum, const usc_json *found)
{
    const usc_json *bits = usc_json_get(found, "bits");
    sum->probed = true;
    for (int i = 0; i < N_SIZED; i++) {
        const usc_json *value = usc_json_get(bits, sized[i]);
        const double b = value != NULL ? usc_json_as_number(value) : 0;
        if (sum->bits[i] < 0 || b < sum->bits[i]) sum->bits[i] = b;
    }
    for (int i = 0; i < N_LISTS; i++) {
        const usc_json *texts = usc_json_get(found, lists[i]);
        for (size_t k = 0; k < usc_json_size(texts); k++) {
            const char *text = usc_json_as_text(usc_json_item(texts, k));
            if (text != NULL) add_text(s, &sum->list[i], text);
        }
    }
    for (text_item **at = &sum->list[CAUGHT]; *at != NULL;)
        if (is_in(sum->list[UNSEEN], (*at)->text))
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

/* ---- as work of a crew ---- */

static bool more(void *ctx)
{
    const self_test *s = ctx;
    return s->next < s->n;
}

static int64_t take(void *ctx)
{
    return ((self_test *)ctx)->next++;
}

static void request(void *ctx, int64_t job, usc_line *to)
{
    const self_test *s = ctx;
    usc_line_add(to, "{\"call\": %lld, \"self_test\": true", (long long)s->call[job]);
}

static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    self_test *s = ctx;
    const usc_run_hooks *hooks = s->check->hooks;
    const usc_call *call = usc_calls_find(s->check->calls, s->call[news->job]);
    const usc_json *found = usc_json_get(news->row, "self_test");
    const char *skipped = usc_json_as_text(usc_json_get(found, "skipped"));
    op_sum *sum = sum_of(s, call->op);
    if (sum == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "self-test: no memory");
    sum->calls++;
    if (found == NULL) skipped = "no answer in time";
    if (skipped == NULL)
        merge(s, sum, found);
    else if (sum->skipped == NULL)
        sum->skipped = usc_arena_text(&s->arena, skipped);
    s->n_done++;
    if (hooks->progress != NULL)
        hooks->progress(hooks->ctx, "self-test", s->n_done, s->n, 0);
    return USC_OK;
}

/* ---- which calls ---- */

/* Calls of one operator on the same shapes and dtypes are probed once. */
static usc_hash128 key_of(self_test *s, const usc_call *call)
{
    usc_line text = {0};
    usc_line_text(&text, call->op);
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *t = &call->arg[i];
        if (t->role != USC_ROLE_IN) continue;
        usc_line_add(&text, "\n%s %s", t->path, t->dtype_name);
        for (int axis = 0; axis < t->ndim; axis++)
            usc_line_add(&text, " %lld", (long long)t->sizes[axis]);
    }
    const usc_hash128 key = usc_hash_bytes(text.text, text.n);
    s->arena.failed |= text.failed;
    usc_line_free(&text);
    return key;
}

static void choose(self_test *s)
{
    const usc_selection *picks = &s->check->picks;
    usc_keys seen = {0};
    s->call = usc_arena_take(&s->arena, (size_t)(picks->n + 1) * sizeof *s->call);
    for (int64_t i = 0; s->call != NULL && i < picks->n; i++) {
        const usc_call *call = usc_calls_find(s->check->calls, picks->pick[i].call);
        if (call != NULL && usc_keys_put(&seen, key_of(s, call), s->n) == s->n)
            s->call[s->n++] = call->sequence;
    }
    s->arena.failed |= seen.failed;
    usc_keys_free(&seen);
}

/* ---- what is kept ---- */

static void tell_sum(const op_sum *sum, usc_line *to)
{
    usc_line_json(to, sum->op);
    usc_line_text(to, ": {");
    if (sum->probed) {
        usc_line_text(to, "\"bits\": {");
        for (int i = 0; i < N_SIZED; i++) {
            usc_line_add(to, "%s\"%s\": ", i > 0 ? ", " : "", sized[i]);
            if (sum->bits[i] > 0)
                usc_line_add(to, "%.17g", sum->bits[i]);
            else
                usc_line_text(to, "null");
        }
        usc_line_text(to, "}, ");
    }
    usc_line_add(to, "\"calls\": %lld", (long long)sum->calls);
    for (int i = 0; sum->probed && i < N_LISTS; i++) {
        usc_line_add(to, ", \"%s\": [", lists[i]);
        for (const text_item *t = sum->list[i]; t != NULL; t = t->next) {
            if (t != sum->list[i]) usc_line_text(to, ", ");
            usc_line_json(to, t->text);
        }
        usc_line_text(to, "]");
    }
    if (sum->skipped != NULL) {
        usc_line_text(to, ", \"skipped\": ");
        usc_line_json(to, sum->skipped);
    }
    usc_line_text(to, "}");
}

static usc_status keep(const self_test *s, usc_error *err)
{
    usc_line text = {0};
    usc_line_text(&text, "{");
    for (const op_sum *sum = s->sums; sum != NULL; sum = sum->next) {
        if (sum != s->sums) usc_line_text(&text, ", ");
        tell_sum(sum, &text);
    }
    usc_line_text(&text, "}");
    usc_status st = USC_OK;
    if (text.failed || s->arena.failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "self-test: no memory");
    else
        st = usc_result_set(s->check->result, "self_test", text.text, err);
    usc_line_free(&text);
    return st;
}

usc_status usc_check_self_test(usc_check *c, bool *stopped, usc_error *err)
{
    self_test s = {.check = c, .arena = {.alloc = usc_libc_alloc}};
    usc_line settings = {0};
    usc_check_say(c, "self-test: planting mistakes into the results of every operator");
    choose(&s);
    int64_t jobs = c->options->jobs > 0 ? c->options->jobs : c->options->cores;
    if (jobs > s.n) jobs = s.n > 0 ? s.n : 1;
    usc_check_settings(c, (int)jobs, usc_check_memory(c), &settings);
    const usc_crew_work work = {
        .ctx = &s, .more = more, .take = take, .request = request, .hear = hear};
    const double timeout =
        c->options->timeout > 0 ? c->options->timeout : USC_RUN_TIMEOUT;
    const usc_crew_settings crew = {
        .text = settings.text, .size = (int)jobs, .timeout = timeout};
    usc_status st = USC_OK;
    if (c->hooks->progress != NULL)
        c->hooks->progress(c->hooks->ctx, "self-test", 0, s.n, 0);
    if (settings.failed || c->texts.failed || s.arena.failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "self-test: no memory");
    if (st == USC_OK) st = usc_crew_run(&crew, &work, c->hooks, stopped, err);
    if (st == USC_OK && !*stopped) st = keep(&s, err);
    usc_line_free(&settings);
    usc_arena_free(&s.arena);
    return st;
}
