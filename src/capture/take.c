// SPDX-License-Identifier: Apache-2.0
// A call begins and ends; see session.h, the rules stand in ulpscope/x/capture.h.
// Neighbour: take_tensor.c, what each of its tensors touches.
#include "capture/fetch.h"
#include "capture/sift.h"
#include "capture/take_tensor.h"

#include <assert.h>

static void pack_nothing(usc_packer *p, const void *what)
{
    (void)what;
    usc_pack_i64(p, 0);
}

static void pack_gone(usc_packer *p, const void *what)
{
    usc_pack_i64(p, ((const usc_storage *)what)->id);
}

typedef struct call_payload {
    usc_capture *c;
    const usc_call_row *row; /* CALL */
    int64_t sequence;        /* END */
    usc_end how;
    const usc_capture_tensor *tensors;
    int n;
} call_payload;

static void pack_args(usc_packer *p, const call_payload *call)
{
    const int64_t *ids = call->c->ids.at;
    int64_t n = 0;
    for (int i = 0; i < call->n; i++)
        n += ids[i] != USC_LEFT_OUT;
    usc_pack_i64(p, n);
    for (int i = 0; i < call->n; i++) {
        const usc_capture_tensor *t = &call->tensors[i];
        if (ids[i] == USC_LEFT_OUT) continue;
        const usc_reach reach = t->look > 0 ? usc_view_reach(t) : (usc_reach){0};
        const usc_arg_message m = {.tensor = ids[i],
                                   .look = t->look,
                                   .view =
                                       t->look > 0 ? usc_view_stats_key(t, &reach) : 0,
                                   .role = (int32_t)t->role,
                                   .i_arg = t->i_arg,
                                   .i_item = t->i_item,
                                   .has_keyword = t->keyword != NULL,
                                   .has_part = t->part != NULL,
                                   .has_path = t->path != NULL};
        usc_pack_bytes(p, &m, sizeof m);
        if (t->keyword != NULL) usc_pack_text(p, t->keyword);
        if (t->part != NULL) usc_pack_text(p, t->part);
        if (t->path != NULL) usc_pack_text(p, t->path);
    }
}

static void pack_call(usc_packer *p, const void *what)
{
    const call_payload *call = what;
    const usc_unobserved *unobserved = call->c->unobserved.at;
    usc_pack_bytes(p, call->row, sizeof *call->row);
    usc_pack_text(p, call->row->args);
    usc_pack_text(p, call->row->state);
    pack_args(p, call);
    usc_pack_i64(p, call->c->n_unobserved);
    for (int64_t i = 0; i < call->c->n_unobserved; i++)
        usc_pack_bytes(p, &unobserved[i], sizeof unobserved[i]);
}

static void pack_end(usc_packer *p, const void *what)
{
    const call_payload *call = what;
    usc_pack_i64(p, call->sequence);
    usc_pack_i64(p, call->how);
    pack_args(p, call);
}

/* Rows for the tensors with or without (`mutated` false) the role MUTATED; ids in c->ids.
 */
static bool touch_all(usc_capture *c, const call_payload *call, bool mutated)
{
    if (!usc_session_scratch(c, &c->ids, (size_t)call->n * sizeof(int64_t))) return false;
    int64_t *ids = c->ids.at;
    for (int i = 0; i < call->n; i++) {
        const usc_capture_tensor *t = &call->tensors[i];
        if ((t->role == USC_ROLE_MUTATED) != mutated) continue;
        ids[i] = mutated && !usc_touch_was_written(c, t, call->sequence)
                     ? USC_LEFT_OUT
                     : usc_take_tensor(c, t, call->sequence);
        if (ids[i] == 0) return false;
    }
    return true;
}

static int64_t begin(usc_capture *c, const usc_capture_call *call)
{
    const int64_t sequence = ++c->counts.n_calls;
    const usc_call_row row = {.sequence = sequence,
                              .step = c->step,
                              .phase = call->phase,
                              .op = call->op,
                              .module = call->module,
                              .stack = call->stack,
                              .parent = call->parent,
                              .thread = call->thread,
                              .args = call->args != NULL ? call->args : "{}",
                              .state = call->state,
                              .composite = call->composite};
    const call_payload payload = {.c = c,
                                  .row = &row,
                                  .sequence = sequence,
                                  .tensors = call->tensors,
                                  .n = call->n_tensors};
    c->n_unobserved = 0;
    if (atomic_load(&c->keep_done) && !c->stats_only) {
        c->stats_only = true;
        usc_session_send(c, USC_MESSAGE_FORGET, pack_nothing, NULL);
    }
    if (!touch_all(c, &payload, false)) return 0;
    return usc_session_send(c, USC_MESSAGE_CALL, pack_call, &payload) ? sequence : 0;
}

/* Gives up the lock, then the storages that died: that may run the host's code. */
static void leave(usc_capture *c)
{
    usc_storage *const dead = usc_storage_take_dead(&c->storages);
    for (const usc_storage *s = dead; c->watcher != NULL && s != NULL; s = s->next_dead)
        usc_session_send(c, USC_MESSAGE_GONE, pack_gone, s);
    usc_fetch_done(c);
    pthread_mutex_unlock(&c->lock);
    usc_storage_bury(&c->storages, dead);
}

/* A call that is not taken writes all the same: of what it writes nothing is known. */
static void pass_over(usc_capture *c, const usc_capture_call *call)
{
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < call->n_tensors; i++) {
        const usc_capture_tensor *t = &call->tensors[i];
        if (t->storage == NULL || !t->written) continue;
        usc_storage *s = usc_storage_find(&c->storages, t->storage);
        if (s != NULL) usc_storage_forget(&c->storages, s);
    }
    leave(c);
}

int64_t usc_capture_begin(usc_capture *c, const usc_capture_call *call)
{
    assert(c && call);
    if (atomic_load(&c->failed) || atomic_load(&c->stopped)) return 0;
    if (!usc_sift_wants(c, call)) {
        pass_over(c, call);
        return 0;
    }
    usc_fetch_ahead(c, call->tensors, call->n_tensors, 0);
    const int64_t sequence = c->step_open ? begin(c, call) : 0;
    leave(c);
    return sequence;
}

static void end(usc_capture *c, int64_t sequence, const usc_capture_tensor *tensors,
                int n, usc_end how)
{
    if (sequence == 0 || atomic_load(&c->failed)) return;
    usc_fetch_ahead(c, tensors, n, sequence);
    const call_payload payload = {
        .c = c, .sequence = sequence, .how = how, .tensors = tensors, .n = n};
    /* What was written first: results may be views of it. */
    if (touch_all(c, &payload, true) && touch_all(c, &payload, false))
        usc_session_send(c, USC_MESSAGE_END, pack_end, &payload);
    leave(c);
}

void usc_capture_end(usc_capture *c, int64_t sequence, const usc_capture_tensor *tensors,
                     int n, bool ok)
{
    end(c, sequence, tensors, n, ok ? USC_END_OK : USC_END_RAISED);
}

void usc_capture_more(usc_capture *c, int64_t sequence, const usc_capture_tensor *tensors,
                      int n)
{
    end(c, sequence, tensors, n, USC_END_NOT);
}
