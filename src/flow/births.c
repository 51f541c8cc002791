// SPDX-License-Identifier: Apache-2.0
// Births of NaN and Inf while a program runs: flow.h. One thread hands over the calls,
// any thread reads what was found.
#include <ulpscope/x/flow.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/line.h"

enum { MOST = 1000, ROOM = 512 };

struct usc_births {
    usc_flow *flow;
    int64_t most;
    pthread_mutex_t lock; /* of what follows */
    int64_t n, n_kept;
    usc_birth **birth; /* a birth stays where it is */
};

usc_status usc_births_create(int64_t most, usc_births **out, usc_error *err)
{
    usc_births *b = calloc(1, sizeof *b);
    *out = NULL;
    if (b == NULL) return usc_no_memory("births", err);
    b->most = most > 0 ? most : MOST;
    pthread_mutex_init(&b->lock, NULL);
    const usc_status st = usc_flow_create(&b->flow, err);
    if (st == USC_OK)
        *out = b;
    else
        usc_births_free(b);
    return st;
}

void usc_births_free(usc_births *b)
{
    if (b == NULL) return;
    for (int64_t i = 0; i < b->n_kept; i++)
        free(b->birth[i]);
    free(b->birth);
    usc_flow_free(b->flow);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void usc_births_forget(usc_births *b, int64_t storage)
{
    usc_flow_forget(b->flow, storage);
}

int64_t usc_births_count(usc_births *b, int64_t *kept)
{
    pthread_mutex_lock(&b->lock);
    const int64_t n = b->n;
    if (kept != NULL) *kept = b->n_kept;
    pthread_mutex_unlock(&b->lock);
    return n;
}

const usc_birth *usc_births_at(usc_births *b, int64_t i)
{
    pthread_mutex_lock(&b->lock);
    const usc_birth *birth = i >= 0 && i < b->n_kept ? b->birth[i] : NULL;
    pthread_mutex_unlock(&b->lock);
    return birth;
}

/* ---- taking one ---- */

static bool is_birth(const usc_flow_event *e)
{
    return e->kind == USC_FLOW_BORN || e->kind == USC_FLOW_TURNED ||
           (e->kind == USC_FLOW_ENTERED && e->n_nan > 0);
}

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* "NaN entered at aten::addmm, call 12 of step 0, forward, module 0: 1 NaN among ..." */
static void add_sentence(usc_line *to, const usc_call *call, const usc_birth *b)
{
    char said[ROOM];
    usc_flow_say(call, &b->event, said, sizeof said);
    usc_line_add(to, "%s %s %s, call %" PRId64 ", step %" PRId64 ", %s", b->value,
                 b->event.kind == USC_FLOW_ENTERED ? "entered at" : "is born in",
                 text_of(call->op), b->event.call, b->step, text_of(call->phase));
    if (text_of(call->module_path)[0] != '\0')
        usc_line_add(to, ", module %s", call->module_path);
    usc_line_add(to, ": %s", said);
}

/* A copy of `text` at `*at`, which moves behind it. */
static const char *keep(char **at, const char *text)
{
    if (text == NULL) return NULL;
    const size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

/* One block for all of it. */
static usc_birth *birth_of(const usc_call *call, const usc_flow_event *event)
{
    usc_birth b = {.event = *event, .step = call->step};
    char inputs[ROOM];
    usc_line sentence = {0};
    b.value = event->n_nan > 0 ? "NaN" : "Inf";
    add_sentence(&sentence, call, &b);
    const bool ok = usc_call_summary(call, inputs, sizeof inputs, NULL) == USC_OK;
    const char *const texts[] = {text_of(call->op),          text_of(call->phase),
                                 text_of(call->module_path), inputs,
                                 text_of(sentence.text),     call->frames};
    enum { N_TEXTS = sizeof texts / sizeof texts[0] };
    const char *kept[N_TEXTS];
    size_t size = sizeof b;
    for (size_t i = 0; i < N_TEXTS; i++)
        size += strlen(text_of(texts[i])) + 1;
    usc_birth *out = ok && !sentence.failed ? malloc(size) : NULL;
    char *at = (char *)(out + 1);
    for (size_t i = 0; out != NULL && i < N_TEXTS; i++)
        kept[i] = keep(&at, texts[i]);
    if (out != NULL) {
        b.op = kept[0], b.phase = kept[1], b.module = kept[2];
        b.inputs = kept[3], b.sentence = kept[4], b.frames = kept[5];
        *out = b;
    }
    usc_line_free(&sentence);
    return out;
}

static usc_status take(usc_births *b, usc_birth *birth, usc_error *err)
{
    usc_status st = USC_OK;
    pthread_mutex_lock(&b->lock);
    usc_birth **more = realloc(b->birth, (size_t)(b->n_kept + 1) * sizeof(usc_birth *));
    if (more != NULL) {
        b->birth = more;
        b->birth[b->n_kept++] = birth;
    } else {
        free(birth);
        st = usc_no_memory("births", err);
    }
    pthread_mutex_unlock(&b->lock);
    return st;
}

usc_status usc_births_call(usc_births *b, const usc_call *call, usc_error *err)
{
    usc_flow_event event;
    const usc_status st = usc_flow_call(b->flow, call, &event, err);
    if (st != USC_OK || !is_birth(&event)) return st;
    pthread_mutex_lock(&b->lock);
    const bool kept = b->n++ < b->most;
    pthread_mutex_unlock(&b->lock);
    if (!kept) return USC_OK;
    usc_birth *birth = birth_of(call, &event);
    return birth != NULL ? take(b, birth, err) : usc_no_memory("births", err);
}
