// SPDX-License-Identifier: Apache-2.0
// Drives a case from want to want; the form of an output. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/float_env.h"
#include "kernels/walk_load.h"

/* ---- the machine ---- */

/* Which function a stage is, for those who go on with it. */
static usc_case_stage *const stages[] = {
#define STAGE_ROW(id, function) [USC_STAGE_##id] = function,
    USC_STAGE_LIST(STAGE_ROW)
#undef STAGE_ROW
};

/* An answer that failed, of what there must be. */
static usc_status fail(usc_case *c)
{
    usc_case_conclude(c, USC_VERDICT_UNJUDGED, "no reference: %s", c->text);
    c->f.n = 0;
    return usc_case_pass(c, USC_STAGE_END);
}

static bool is_over(const usc_case *c)
{
    return c->stage == NULL && c->passed_to == USC_STAGE_NONE;
}

enum { MOST_TURNS = 1 << 16 }; /* stages without a want between them */

usc_status usc_case_next(usc_case *c, usc_want *out, usc_error *err)
{
    *out = (usc_want){0};
    const usc_float_env env = usc_float_env_enter();
    usc_status st = USC_OK;
    for (int turn = 0; st == USC_OK && !is_over(c); turn++) {
        if (turn == MOST_TURNS)
            st = usc_error_set(err, USC_E_UNSUPPORTED, -1,
                               "%s: the case goes round without asking", c->o.path);
        if (st != USC_OK) break;
        if (c->want.kind != USC_WANT_NOTHING && !c->answered) break;
        const bool failed = c->answered && c->given.form == USC_GIVEN_FAILED;
        const bool must = usc_case_must_answer(c->want.kind);
        c->want.kind = USC_WANT_NOTHING;
        c->answered = false;
        if (c->passed_to != USC_STAGE_NONE) c->stage = stages[c->passed_to];
        c->passed_to = USC_STAGE_NONE;
        st = failed && must ? fail(c) : c->stage(c, err);
        if (c->work.failed || c->keeping.failed || c->found->arena.failed)
            st = usc_no_memory(c->o.path, err);
    }
    usc_float_env_leave(env);
    if (st == USC_OK && !is_over(c)) *out = c->want;
    return st;
}

usc_status usc_case_give(usc_case *c, const usc_given *given, usc_error *err)
{
    if (c->want.kind == USC_WANT_NOTHING)
        return usc_error_set(err, USC_E_ARG, -1, "nothing was asked");
    const usc_tensor *tensors[3] = {given->a, given->b, given->c};
    for (int i = 0; i < 3; i++)
        if (tensors[i] != NULL && tensors[i]->dtype == USC_DTYPE_NONE &&
            c->want.kind != USC_WANT_REFERENCE)
            return usc_error_set(err, USC_E_DTYPE, -1,
                                 "%s: nobody computes with that dtype", c->o.path);
    c->given = *given;
    const usc_tensor **const kept[3] = {&c->given.a, &c->given.b, &c->given.c};
    for (int i = 0; i < 3; i++) {
        if (tensors[i] == NULL) continue;
        c->tensors[i] = *tensors[i];
        *kept[i] = &c->tensors[i];
    }
    (void)snprintf(c->text, sizeof c->text, "%s", given->text != NULL ? given->text : "");
    c->given.text = c->text;
    if (given->choice != NULL) {
        if (given->choice->values != NULL &&
            given->choice->values->dtype == USC_DTYPE_NONE)
            return usc_error_set(err, USC_E_DTYPE, -1, "%s: a choice among bytes",
                                 c->o.path);
        c->choice = *given->choice;
        if (c->choice.values != NULL) {
            c->values = *c->choice.values;
            c->choice.values = &c->values;
        }
        c->given.choice = &c->choice;
    }
    if (given->known != NULL) {
        c->known = *given->known;
        c->given.known = &c->known;
        if (c->known.device != NULL) {
            c->known_device = *c->known.device;
            c->known.device = &c->known_device;
        }
    }
    c->answered = true;
    return USC_OK;
}

/* ---- the form of an output ---- */

static const char *dtype_text(const usc_case *c)
{
    return c->o.dtype != NULL ? c->o.dtype : usc_dtype_info_of(c->device.dtype)->name;
}

static usc_status route(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->o.free) {
        if (c->kept != NULL) usc_case_keep_free(c);
        usc_case_conclude(c, USC_VERDICT_PASS, "%s", "");
        return usc_case_pass(c, USC_STAGE_END);
    }
    if (c->o.bytes != NULL || c->truth.dtype == USC_DTYPE_NONE)
        return usc_case_pass(c, USC_STAGE_BYTES);
    if (c->o.exact || !usc_case_is_float(&c->device))
        return usc_case_pass(c, USC_STAGE_EXACT);
    if (!usc_case_is_float(&c->truth)) {
        usc_case_conclude(c, USC_VERDICT_WRONG,
                          "a float where the operator gives integers");
        return usc_case_pass(c, USC_STAGE_END);
    }
    return usc_case_pass(c, c->kept != NULL ? USC_STAGE_KEEP_FLOAT : USC_STAGE_FLOAT);
}

static usc_status check_dtype(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->kept != NULL) {
        usc_case_keep_dtype(c);
        return usc_case_go(c, route);
    }
    if (usc_case_given(c, USC_GIVEN_AS_ASKED) && strcmp(c->text, dtype_text(c)) != 0) {
        usc_case_conclude(c, USC_VERDICT_WRONG, USC_OTHER_DTYPE, dtype_text(c), c->text);
        return usc_case_pass(c, USC_STAGE_END);
    }
    return usc_case_go(c, route);
}

/* A truth that a narrower float holds all of, widened. */
static usc_status widen_truth(usc_case *c, usc_error *err)
{
    if (!usc_case_is_float(&c->truth) || c->truth.dtype == USC_F64) return USC_OK;
    double *wide = usc_case_room(c, c->n, sizeof *wide);
    const void *raw = usc_case_plain(c, &c->truth);
    if (wide == NULL || raw == NULL) return usc_no_memory(c->o.path, err);
    usc_kernels_widen(c->truth.dtype, raw, wide, (size_t)c->n);
    const usc_tensor t = c->truth;
    return usc_tensor_make(&c->truth, wide, USC_F64, t.ndim, t.sizes, err);
}

/* What was captured is trusted where it agrees. */
usc_status usc_case_form(usc_case *c, usc_error *err)
{
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL) {
        usc_case_conclude(c, USC_VERDICT_UNJUDGED, "there is no reference");
        return usc_case_pass(c, USC_STAGE_END);
    }
    c->truth = *c->given.a;
    c->yardstick = c->given.b != NULL ? *c->given.b : c->truth;
    char text[256];
    if (usc_misshapen(&c->device, &c->truth, text, sizeof text)) {
        usc_case_conclude(c, USC_VERDICT_WRONG, "%s", text);
        return usc_case_pass(c, USC_STAGE_END);
    }
    if (c->reading.at == 0) usc_case_read_own(c);
    const usc_status st = widen_truth(c, err);
    if (st != USC_OK) return st;
    const bool as_captured =
        c->o.captured != NULL && strcmp(c->o.captured, dtype_text(c)) == 0;
    if (as_captured && c->kept == NULL) return usc_case_go(c, route);
    return usc_case_ask(c, USC_WANT_DTYPE, 0, check_dtype);
}

/* ---- the end ---- */

usc_status usc_case_put_away(usc_case *c, usc_error *err)
{
    usc_judge_close(c->look.judge);
    c->look.judge = NULL;
    if (c->chain.weighing) return usc_case_pass(c, USC_STAGE_CHAIN_WEIGHED);
    if (usc_case_may_keep_chain(c)) return usc_case_pass(c, USC_STAGE_KEEP_CHAIN);
    if (usc_case_may_read(c)) return usc_case_pass(c, USC_STAGE_READ);
    if (usc_case_may_take_apart(c)) return usc_case_pass(c, USC_STAGE_TAKE_APART);
    c->stage = NULL;
    if (c->reading.at == 0 && c->reading.n_refused > 0) usc_case_refuse(c);
    if (c->reading.note != NULL) usc_case_note(c, "%s", c->reading.note);
    if (c->kept == NULL) return usc_case_keep(c, err);
    usc_case_keep_end(c);
    return USC_OK;
}

/* What is narrower than somebody else's formula gives says so, and what it does not hold
 * is excused. */
static usc_status in_own_dtype(usc_case *c, usc_error *err)
{
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->device))
        return usc_case_pass(c, USC_STAGE_PUT_AWAY);
    const usc_dtype_info *want = usc_dtype_info_of(c->given.a->dtype);
    const usc_dtype_info *got = usc_dtype_info_of(c->device.dtype);
    if (got->size >= want->size) return usc_case_pass(c, USC_STAGE_PUT_AWAY);
    usc_case_note(c, "judged as %s, where the reference gives %s", got->name, want->name);
    const double *native = usc_case_wide(c, c->given.a);
    if (native == NULL || !usc_case_load(c)) return usc_no_memory(c->o.path, err);
    int64_t n_lost = 0;
    for (int64_t i = 0; i < c->n; i++)
        n_lost += !isfinite(c->d[i]) && isfinite(native[i]);
    usc_case_excuse(c, USC_EXCUSE_DTYPE, n_lost);
    return usc_case_pass(c, USC_STAGE_PUT_AWAY);
}

usc_status usc_case_end(usc_case *c, usc_error *err)
{
    (void)err;
    if (usc_case_may_have_factor(c)) return usc_case_pass(c, USC_STAGE_FACTOR);
    if (usc_case_may_lose(c)) return usc_case_pass(c, USC_STAGE_LOST);
    if (usc_case_may_tie(c)) return usc_case_pass(c, USC_STAGE_TIES);
    if (usc_case_may_be_narrow(c)) return usc_case_pass(c, USC_STAGE_NARROW);
    const bool blamed =
        c->f.verdict == USC_VERDICT_WRONG || c->f.verdict == USC_VERDICT_REDUCED;
    if (!c->o.any_float || blamed || !usc_case_is_float(&c->device) || c->kept != NULL)
        return usc_case_pass(c, USC_STAGE_PUT_AWAY);
    return usc_case_ask(c, USC_WANT_NATIVE, 0, in_own_dtype);
}

/* ---- handles ---- */

usc_status usc_case_open(const usc_case_options *options, usc_case **out, usc_error *err)
{
    static const usc_case_options defaults;
    if (options == NULL) options = &defaults;
    const usc_alloc *alloc = options->alloc != NULL ? options->alloc : &usc_libc_alloc;
    *out = NULL;
    usc_case *c = alloc->resize(alloc->ctx, NULL, 0, sizeof *c);
    if (c == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "a case: no memory");
    memset(c, 0, sizeof *c);
    c->alloc = c->work.alloc = c->keeping.alloc = *alloc;
    c->n_threads = options->n_threads;
    c->large = options->large;
    c->work_of_sample = options->work;
    c->fewest = options->fewest;
    c->found = options->findings;
    c->own = c->found == NULL;
    const usc_status st = c->own ? usc_findings_open(alloc, &c->found, err) : USC_OK;
    if (st == USC_OK)
        *out = c;
    else
        usc_case_close(c);
    return st;
}

void usc_case_close(usc_case *c)
{
    if (c == NULL) return;
    const usc_alloc alloc = c->alloc;
    usc_judge_close(c->look.judge);
    if (c->own) usc_findings_close(c->found);
    usc_arena_free(&c->work);
    usc_arena_free(&c->keeping);
    (void)alloc.resize(alloc.ctx, c, sizeof *c, 0);
}

usc_status usc_case_begin(usc_case *c, const usc_case_output *o, usc_error *err)
{
    usc_case_forget(c);
    usc_arena_reset(&c->work);
    c->reading = (struct usc_case_reading){0};
    c->apart = (struct usc_case_apart){0};
    c->chain = (struct usc_case_chain){0};
    memset(&c->seen, 0, sizeof c->seen);
    c->o = *o;
    c->sight = c->whole.n_pieces > 0 && c->whole.settled && !o->keep;
    c->device = *o->device;
    c->o.device = &c->device;
    c->o.path = usc_case_text(c, o->path);
    if (o->bytes != NULL) {
        c->bytes = *o->bytes;
        c->o.bytes = &c->bytes;
    }
    usc_status st = usc_tensor_numel(&c->device, &c->n, err);
    usc_case_put_part(c, &o->part);
    if (st == USC_OK && o->keep) st = usc_case_keep_begin(c, err);
    if (st != USC_OK) return st;
    if (o->carries && !o->keep)
        return usc_case_ask_for(c, USC_WANT_NATIVE, 0, USC_STAGE_CARRIED);
    return usc_case_ask_for(c, USC_WANT_REFERENCE, 0, USC_STAGE_FORM);
}

const usc_kept *usc_case_kept(const usc_case *c, int i)
{
    return i >= 0 && (size_t)i < c->n_all ? c->all[i] : NULL;
}
