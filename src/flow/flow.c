// SPDX-License-Identifier: Apache-2.0
// Where NaN and Inf come from, by the statistics that a trace keeps of every tensor.
#include <ulpscope/x/flow.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/dtype.h>
#include <ulpscope/x/pattern.h>

#include "base/keys.h"

/* What leaves memory as it finds it. */
#define UNWRITTEN "aten::empty*,aten::new_empty*,aten::resize*"

/* What fills a part of what it writes: the rest is as it found it. */
#define FILLED_IN_PART "fsdp::all_gather_copy_in"

/* What a storage holds since a call wrote it: the number of the call where that began and
 * which sign of Inf was meant, in one number of the table. Of GARBAGE the number is that
 * of the version that nobody wrote: what wrote it unseen made another one. */
enum { MEANT_POS = 1, MEANT_NEG = 2, GARBAGE = 4, N_FLAGS = 8 };

struct usc_flow {
    usc_keys storages;
};

static const char *const texts[USC_N_FLOW_KINDS] = {
#define TEXT(id, text) [USC_FLOW_##id] = (text),
    USC_FLOW_LIST(TEXT)
#undef TEXT
};

const char *usc_flow_text(usc_flow_kind kind)
{
    return (unsigned)kind < USC_N_FLOW_KINDS ? texts[kind] : "unknown";
}

usc_status usc_flow_create(usc_flow **out, usc_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "flow: no memory");
    return USC_OK;
}

void usc_flow_free(usc_flow *flow)
{
    if (flow == NULL) return;
    usc_keys_free(&flow->storages);
    free(flow);
}

/* ---- what is known of a storage ---- */

static usc_hash128 key_of_storage(int64_t storage)
{
    return usc_hash_bytes(&storage, sizeof storage);
}

static usc_hash128 key_of(const usc_call_arg *arg)
{
    return key_of_storage(arg->storage);
}

void usc_flow_forget(usc_flow *flow, int64_t storage)
{
    usc_keys_remove(&flow->storages, key_of_storage(storage));
}

/* 0: nothing is known of it. */
static int64_t mark_of(const usc_flow *flow, const usc_call_arg *arg)
{
    const int64_t *mark = usc_keys_find(&flow->storages, key_of(arg));
    return mark != NULL ? *mark : 0;
}

static bool is_garbage(const usc_flow *flow, const usc_call_arg *arg)
{
    const int64_t mark = mark_of(flow, arg);
    return (mark % N_FLAGS & GARBAGE) != 0 && mark / N_FLAGS == arg->version;
}

/* The call where it began that it holds NaN or Inf; 0: none that was seen. */
static int64_t source_of(const usc_flow *flow, const usc_call_arg *arg)
{
    const int64_t mark = mark_of(flow, arg);
    return (mark % N_FLAGS & GARBAGE) != 0 ? 0 : mark / N_FLAGS;
}

static void set_mark(usc_flow *flow, const usc_call_arg *arg, int64_t source, int flags)
{
    const int64_t mark = source * N_FLAGS + flags;
    (void)usc_keys_put(&flow->storages, key_of(arg), mark);
    int64_t *place = usc_keys_find(&flow->storages, key_of(arg));
    if (place != NULL) *place = mark;
}

/* ---- what statistics say ---- */

static usc_range range_of(const usc_call_arg *arg)
{
    usc_range range;
    (void)usc_call_arg_range(arg, &range);
    return range;
}

static bool any(const usc_range *c)
{
    return c->n_nan > 0 || c->n_pos_inf > 0 || c->n_neg_inf > 0;
}

/* ---- what comes in ---- */

typedef struct inputs {
    usc_range all; /* counts alone */
    int arg;    /* the first that brings any; one that is not overwritten before others */
    int widest; /* holds the largest finite value */
    double largest;
    bool stray_pos, stray_neg; /* Inf of that sign, and nobody meant it */
} inputs;

static bool is_overwritten(const usc_call *call, const usc_call_arg *in)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].role == USC_ROLE_MUTATED &&
            strcmp(call->arg[i].path, in->path) == 0)
            return true;
    return false;
}

/* Of these the first argument is only written, as an out= is of every operator. */
#define OVERWRITERS                                                                      \
    "copy_,zero_,fill_,normal_,uniform_,random_,bernoulli_,exponential_,"                \
    "_foreach_copy_,_foreach_zero_,c10d::allgather_,c10d::_allgather_base_,"             \
    "c10d::reduce_scatter_,c10d::_reduce_scatter_base_,c10d::alltoall_,"                 \
    "c10d::alltoall_base_,c10d::recv_"

static bool is_unread(const usc_call *call, const usc_call_arg *arg)
{
    const bool is_first =
        strncmp(arg->path, "args[0]", 7) == 0 && usc_pattern_match(OVERWRITERS, call->op);
    return (is_first || strncmp(arg->path, "kwargs.", 7) == 0) &&
           is_overwritten(call, arg);
}

static void add_input(const usc_flow *flow, const usc_call *call, int i, inputs *in)
{
    const usc_call_arg *arg = &call->arg[i];
    const int64_t mark = mark_of(flow, arg);
    usc_range c;
    if (!usc_call_arg_range(arg, &c) || is_garbage(flow, arg)) return;
    if (source_of(flow, arg) == 0 && is_unread(call, arg)) return; /* memory of before */
    const double size = fmax(fabs(c.min), fabs(c.max));
    if (in->widest < 0 || size > in->largest) {
        in->widest = i;
        in->largest = size;
    }
    if (!any(&c)) return;
    if (in->arg < 0 || is_overwritten(call, &call->arg[in->arg])) in->arg = i;
    in->all.n_nan += c.n_nan;
    in->all.n_pos_inf += c.n_pos_inf;
    in->all.n_neg_inf += c.n_neg_inf;
    in->stray_pos |= c.n_pos_inf > 0 && (mark % N_FLAGS & MEANT_POS) == 0;
    in->stray_neg |= c.n_neg_inf > 0 && (mark % N_FLAGS & MEANT_NEG) == 0;
}

/* Flags of the numbers among the arguments that ask for NaN or Inf; -1 for none. */
static int asked_of(const usc_value *value)
{
    int asked = -1;
    if (value->kind == USC_VALUE_LIST)
        for (int64_t i = 0; i < value->n; i++) {
            const int one = asked_of(&value->item[i]);
            if (one >= 0) asked = (asked < 0 ? 0 : asked) | one;
        }
    if (value->kind != USC_VALUE_FLOAT || isfinite(value->number[0])) return asked;
    if (isnan(value->number[0])) return 0;
    return value->number[0] > 0 ? MEANT_POS : MEANT_NEG;
}

static usc_status read_asked(const usc_call *call, int *asked, usc_error *err)
{
    usc_arguments a;
    *asked = -1;
    if (call->args == NULL || strstr(call->args, "\"float\"") == NULL) return USC_OK;
    const usc_status st = usc_arguments_read(call->args, &a, err);
    for (int64_t i = 0; st == USC_OK && i < a.n; i++) {
        const int one = asked_of(&a.argument[i].value);
        if (one >= 0) *asked = (*asked < 0 ? 0 : *asked) | one;
    }
    usc_arguments_free(&a);
    return st == USC_E_NOMEM ? st : USC_OK; /* what cannot be read asks for nothing */
}

/* ---- what comes out ---- */

static bool has_storage(const usc_call *call, usc_role role, int64_t storage)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].role == role && call->arg[i].storage == storage) return true;
    return false;
}

/* What the call gave. A view of memory that nobody has written is none (detach of what
 * empty returned): it shows what lay there. */
static bool is_result(const usc_flow *flow, const usc_call *call, const usc_call_arg *arg)
{
    if (arg->role == USC_ROLE_IN) return false;
    return arg->role == USC_ROLE_MUTATED || !is_garbage(flow, arg) ||
           !has_storage(call, USC_ROLE_IN, arg->storage) ||
           has_storage(call, USC_ROLE_MUTATED, arg->storage);
}

/* The kind of a call that gave `out`, where Inf was asked for by numbers (-1: none was).
 */
static usc_flow_kind kind_of(const usc_range *out, const inputs *in, int asked)
{
    const bool inf_in = in->all.n_pos_inf > 0 || in->all.n_neg_inf > 0;
    if (out->n_nan > 0) {
        if (in->all.n_nan > 0) return USC_FLOW_CARRIED;
        if (asked >= 0) return USC_FLOW_WRITTEN;
        return inf_in ? USC_FLOW_TURNED : USC_FLOW_BORN;
    }
    const bool pos = out->n_pos_inf > 0 && (asked < 0 || (asked & MEANT_POS) == 0);
    const bool neg = out->n_neg_inf > 0 && (asked < 0 || (asked & MEANT_NEG) == 0);
    if (in->arg < 0) return pos || neg ? USC_FLOW_BORN : USC_FLOW_WRITTEN;
    /* a mask of -inf explains -inf alone */
    const bool meant_alone = !in->stray_pos && !in->stray_neg && in->all.n_nan == 0;
    if (meant_alone &&
        ((pos && in->all.n_pos_inf == 0) || (neg && in->all.n_neg_inf == 0)))
        return USC_FLOW_TURNED;
    return USC_FLOW_CARRIED;
}

/* The result that shows it: the first with NaN, else the first with Inf; -1: none. */
static int showing(const usc_flow *flow, const usc_call *call, usc_range *all)
{
    int found = -1;
    bool has_nan = false;
    for (int i = 0; i < call->n_args; i++) {
        if (!is_result(flow, call, &call->arg[i])) continue;
        const usc_range c = range_of(&call->arg[i]);
        if (any(&c) && (found < 0 || (c.n_nan > 0 && !has_nan))) {
            found = i;
            has_nan = c.n_nan > 0;
        }
        all->n_nan += c.n_nan;
        all->n_pos_inf += c.n_pos_inf;
        all->n_neg_inf += c.n_neg_inf;
    }
    return found;
}

static bool is_whole(const usc_call_arg *arg, const usc_range *c)
{
    const size_t size = usc_dtype_info_of(usc_dtype_by_name(arg->dtype_name))->size;
    return c->n * (int64_t)size >= arg->storage_bytes;
}

/* Results that hold NaN or Inf have them from `source`. What of a storage was not looked
 * at keeps what was known of it. */
static void mark_results(usc_flow *flow, const usc_call *call, int64_t source, int flags)
{
    for (int i = 0; i < call->n_args; i++) {
        if (!is_result(flow, call, &call->arg[i])) continue;
        const usc_range c = range_of(&call->arg[i]);
        const int64_t mark = mark_of(flow, &call->arg[i]);
        const bool garbage = (mark % N_FLAGS & GARBAGE) != 0;
        if (any(&c))
            set_mark(flow, &call->arg[i], source, flags);
        else if (garbage && is_whole(&call->arg[i], &c))
            set_mark(flow, &call->arg[i], 0, 0);
    }
}

static int meant_by(const usc_flow *flow, const usc_call *call, const inputs *in)
{
    if (in->arg < 0) return 0;
    const int flags = (int)(mark_of(flow, &call->arg[in->arg]) % N_FLAGS);
    return (in->stray_pos ? 0 : flags & MEANT_POS) |
           (in->stray_neg ? 0 : flags & MEANT_NEG);
}

/* Whether it reads nothing: all that it gives is memory of its inputs, and it wrote none.
 */
static bool is_view(const usc_call *call)
{
    int n = 0;
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *arg = &call->arg[i];
        if (arg->role == USC_ROLE_IN) continue;
        if (arg->role == USC_ROLE_MUTATED ||
            !has_storage(call, USC_ROLE_IN, arg->storage))
            return false;
        n++;
    }
    return n > 0;
}

static void settle(usc_flow *flow, const usc_call *call, const inputs *in, int asked,
                   usc_flow_event *out)
{
    usc_range results = {0};
    int flags = 0;
    out->arg = showing(flow, call, &results);
    out->from = in->arg >= 0 ? in->arg : in->widest;
    out->largest = in->largest;
    if (out->arg < 0 && in->arg < 0) {
        mark_results(flow, call, 0, 0);
        out->from = -1;
        return;
    }
    if (in->arg < 0 && is_view(call)) { /* of memory of a device that was not looked at */
        *out = (usc_flow_event){.call = call->sequence, .arg = -1, .from = -1};
        return;
    }
    out->kind = out->arg < 0 ? USC_FLOW_ENDED : kind_of(&results, in, asked);
    out->source = call->sequence;
    if (out->kind == USC_FLOW_CARRIED || out->kind == USC_FLOW_ENDED) {
        const usc_call_arg *from = &call->arg[in->arg];
        const int64_t source = source_of(flow, from);
        if (source == 0 && is_view(call)) { /* who reads it first is to be told */
            *out = (usc_flow_event){.call = call->sequence, .arg = -1, .from = -1};
            return;
        }
        if (source == 0) { /* nobody that was seen wrote it */
            out->kind = USC_FLOW_ENTERED;
            out->arg = in->arg;
            set_mark(flow, from, call->sequence, 0);
        }
        out->source = source != 0 ? source : call->sequence;
        flags = meant_by(flow, call, in);
        if (out->arg < 0) out->arg = in->arg;
    } else if (out->kind == USC_FLOW_WRITTEN && asked > 0) {
        flags = asked;
    }
    mark_results(flow, call, out->source, flags);
    const usc_range c = range_of(&call->arg[out->arg]);
    out->n = c.n, out->n_nan = c.n_nan;
    out->n_pos_inf = c.n_pos_inf, out->n_neg_inf = c.n_neg_inf;
}

static void mark_garbage(usc_flow *flow, const usc_call *call)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].role != USC_ROLE_IN)
            set_mark(flow, &call->arg[i], call->arg[i].version, GARBAGE);
}

usc_status usc_flow_call(usc_flow *flow, const usc_call *call, usc_flow_event *out,
                         usc_error *err)
{
    int asked = -1;
    inputs in = {.arg = -1, .widest = -1};
    *out = (usc_flow_event){.call = call->sequence, .arg = -1, .from = -1};
    if (call->n_children > 0 || call->op == NULL) return USC_OK;
    if (usc_pattern_match(UNWRITTEN, call->op)) {
        mark_garbage(flow, call);
    } else {
        const usc_status st = read_asked(call, &asked, err);
        if (st != USC_OK) return st;
        for (int i = 0; i < call->n_args; i++)
            if (call->arg[i].role == USC_ROLE_IN) add_input(flow, call, i, &in);
        if (in.arg < 0 && usc_pattern_match(FILLED_IN_PART, call->op))
            mark_garbage(flow, call);
        else
            settle(flow, call, &in, asked, out);
    }
    if (flow->storages.failed)
        return usc_error_set(err, USC_E_NOMEM, -1, "flow: no memory");
    return USC_OK;
}
