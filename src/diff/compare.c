// SPDX-License-Identifier: Apache-2.0
// One pair of calls: what came in, what came out, how far apart it lies, and where that
// began. The rule is docs/reference/diff.md's.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/pattern.h>

#include "diff/align.h"
#include "diff/diffs.h"
#include "diff/measure.h"

/* Roundings that no honest kernel loses on equal inputs: so many, and for each square
 * root of the numbers that one result is made of so many more. */
enum { LIMIT = 32, LIMIT_ROOT = 4, LIMIT_NARROW = 6 };

/* A result so much further apart than the inputs was not made so by conditioning. */
enum { GROWTH = 64, GROWTH_LIMIT = 4 };

/* Beyond so many roundings what nobody judges is no rounding: 64 of float32 are 4e-6, of
 * bfloat16 they would be a quarter. */
enum { ENTERS = 64, ENTERS_NARROW = 2, LONE_NARROW = 8 };

/* Results of these may cancel: they are measured by their inputs as well. */
#define SUMS                                                                             \
    "aten::sum*,aten::mean*,aten::add*,aten::sub*,aten::rsub*,aten::cumsum*,aten::var*," \
    "aten::std*,aten::lerp*,aten::_foreach_add*,aten::_foreach_sub*,aten::_foreach_"     \
    "lerp*,torch.add,torch.sub,torch.sum,torch.mean,torch.Tensor.add,torch.Tensor.sub,"  \
    "torch.Tensor.sum,torch.Tensor.mean"
#define PRODUCTS                                                                         \
    "aten::mm*,aten::bmm*,aten::addmm*,aten::baddbmm*,aten::matmul*,aten::linear*,"      \
    "aten::dot*,aten::mv*,aten::addmv*,aten::conv*,aten::einsum*,torch.nn.functional."   \
    "linear,torch.nn.functional.conv*,torch.matmul,torch.Tensor.matmul,torch.einsum"

/* ---- distances ---- */

static usc_hash128 key_of_pair(const usc_diff *d, const usc_diff_tensor *a,
                               const usc_diff_tensor *b, double scale)
{
    const uint64_t bytes_a = usc_diff_list_bytes(&d->list[0], a);
    const uint64_t bytes_b = usc_diff_list_bytes(&d->list[1], b);
    const bool both = bytes_a != 0 && bytes_b != 0 && !d->options.statistics;
    uint64_t bits;
    memcpy(&bits, &scale, sizeof bits);
    const uint64_t parts[] = {both || a->stats == 0 ? bytes_a : a->stats,
                              both || b->stats == 0 ? bytes_b : b->stats,
                              a->view,
                              b->view,
                              bits,
                              both};
    return usc_hash_bytes(parts, sizeof parts);
}

static bool keep_size(usc_diff *d, usc_hash128 key, const usc_diff_size *size)
{
    if (d->n_sizes == d->size_room) {
        const int64_t room = d->size_room > 0 ? 2 * d->size_room : 256;
        usc_diff_size *more = realloc(d->size, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        d->size = more;
        d->size_room = room;
    }
    d->size[d->n_sizes] = *size;
    (void)usc_keys_put(&d->measured, key, d->n_sizes++);
    return !d->measured.failed;
}

/* Whether there is something to compare: statistics are told of data, too. */
static bool is_kept(const usc_diff_list *l, const usc_diff_tensor *t)
{
    return t->stats != 0 || usc_diff_list_bytes(l, t) != 0;
}

static usc_status distance(usc_diff *d, const usc_call_arg *a, const usc_call_arg *b,
                           double scale, usc_diff_size *out, usc_error *err)
{
    const usc_diff_tensor *ta = usc_diff_table_find(&d->list[0].tensors, a->tensor);
    const usc_diff_tensor *tb = usc_diff_table_find(&d->list[1].tensors, b->tensor);
    bool equal = false;
    *out = (usc_diff_size){0};
    if (ta == NULL || tb == NULL) return USC_OK;
    out->basis = usc_diff_known(d, ta, tb, &equal);
    if (equal || !is_kept(&d->list[0], ta) || !is_kept(&d->list[1], tb)) return USC_OK;
    const usc_hash128 key = key_of_pair(d, ta, tb, scale);
    const int64_t *there = usc_keys_find(&d->measured, key);
    if (there != NULL) {
        *out = d->size[*there];
        return USC_OK;
    }
    const usc_status st = usc_diff_measure(d->list[0].trace, a, d->list[1].trace, b,
                                           d->options.statistics, scale, out, err);
    if (st == USC_OK && !keep_size(d, key, out)) return usc_no_memory("diff", err);
    return st;
}

/* ---- one call ---- */

typedef struct both {
    usc_call a, b;
    double fan; /* numbers that one result is made of, about */
    double scale;
    bool backward; /* a module's */
    bool unkept;   /* of an input nothing was kept on one side at least */
} both;

static double elements_of(const usc_call_arg *arg)
{
    double n = 1;
    for (int i = 0; i < arg->ndim; i++)
        n *= (double)arg->sizes[i];
    return n;
}

/* Whether what lies there was never written. */
static bool is_garbage(const usc_diff *d, const usc_call_arg *arg)
{
    const int64_t i = usc_diff_list_index(&d->list[0], arg->writer);
    return i >= 0 && (d->list[0].call[i].flags & USC_DIFF_UNWRITTEN) != 0;
}

/* The two largest inputs and the largest result. */
static void find_largest(const usc_call *c, const usc_call_arg *in[2],
                         const usc_call_arg **out)
{
    in[0] = in[1] = *out = NULL;
    for (int i = 0; i < c->n_args; i++) {
        const usc_call_arg *arg = &c->arg[i];
        const double n = elements_of(arg);
        if (arg->role != USC_ROLE_IN) {
            if (*out == NULL || n > elements_of(*out)) *out = arg;
        } else if (in[0] == NULL || n > elements_of(in[0])) {
            in[1] = in[0];
            in[0] = arg;
        } else if (in[1] == NULL || n > elements_of(in[1])) {
            in[1] = arg;
        }
    }
}

static double stat_of(const usc_call_arg *arg, const char *name)
{
    double value = 0;
    (void)usc_call_arg_stat(arg, name, &value);
    return isfinite(value) ? value : 0;
}

static double mean_size(const usc_call_arg *arg)
{
    return stat_of(arg, "l2") / sqrt(fmax(elements_of(arg), 1));
}

static void look_at_inputs(both *c)
{
    const usc_call_arg *in[2], *out;
    find_largest(&c->a, in, &out);
    c->fan = c->backward ? usc_diff_gradient_fan(&c->a) : 1;
    if (in[0] == NULL || out == NULL) return;
    const double n = fmax(elements_of(out), 1);
    if (in[1] != NULL && usc_pattern_match(PRODUCTS, c->a.op)) {
        c->fan = fmax(sqrt(elements_of(in[0]) / n * elements_of(in[1])), 1);
        c->scale = mean_size(in[0]) * mean_size(in[1]) * sqrt(c->fan);
        return;
    }
    const int64_t row = in[0]->ndim > 0 ? in[0]->sizes[in[0]->ndim - 1] : 1;
    c->fan = fmax(fmax(elements_of(in[0]) / n, (double)row), c->fan);
    if (usc_pattern_match(SUMS, c->a.op))
        c->scale = fmax(fabs(stat_of(in[0], "min")), fabs(stat_of(in[0], "max")));
}

static double limit_of(const both *c, const usc_call_arg *arg)
{
    const double limit = LIMIT + LIMIT_ROOT * sqrt(c->fan);
    const double wide = 0x1p-24, own = usc_diff_rounding(arg->dtype_name);
    return own > wide ? LIMIT_NARROW + limit * wide / own : limit;
}

/* The furthest of the inputs or of the results. */
static usc_status find_worst(usc_diff *d, both *c, bool results, usc_diff_row *row,
                             usc_error *err)
{
    usc_diff_size *worst = results ? &row->out : &row->in;
    int *arg = results ? &row->out_arg : &row->in_arg;
    for (int i = 0; i < c->a.n_args; i++) {
        usc_diff_size size;
        const usc_call_arg *own = &c->a.arg[i];
        const int other = usc_diff_partner(&c->b, own, i);
        if ((own->role != USC_ROLE_IN) != results || other < 0 || is_garbage(d, own) ||
            usc_diff_is_covered(&c->a, &c->b, own))
            continue;
        const double scale = !results      ? 0
                             : c->backward ? usc_diff_gradient_scale(&c->a, own)
                                           : c->scale;
        const usc_status st = distance(d, own, &c->b.arg[other], scale, &size, err);
        if (st != USC_OK) return st;
        c->unkept |=
            !results && size.basis == USC_DIFF_BY_NOTHING && elements_of(own) > 0;
        const bool more = usc_diff_height(&size) > usc_diff_height(worst) || *arg < 0 ||
                          (worst->basis == USC_DIFF_BY_NOTHING && size.basis > 0);
        if (more) *worst = size, *arg = i;
    }
    return USC_OK;
}

/* ---- where it began ---- */

/* Index of the call that wrote what a call of a side reads; -1: none that is listed. */
static int64_t writer_of(const usc_diff_list *l, int64_t sequence, int64_t tensor)
{
    const usc_diff_call *call = &l->call[usc_diff_list_index(l, sequence)];
    for (int k = 0; k < call->n_args; k++) {
        const usc_diff_arg *arg = &l->arg[call->first_arg + k];
        if (arg->role == USC_ROLE_IN && arg->tensor == tensor)
            return usc_diff_list_index(l, arg->writer);
    }
    return -1;
}

static usc_hash128 key_of_version(int64_t version)
{
    return usc_hash_bytes(&version, sizeof version);
}

/* A number of Python's beside tensors (`x * 1.001`) is kept as a tensor of its own. */
static bool is_number(const usc_call_arg *a)
{
    static const char *const wide[] = {"float64", "int64", "complex128"};
    bool is_wide = false;
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++)
        is_wide |= a->dtype_name != NULL && strcmp(a->dtype_name, wide[k]) == 0;
    return is_wide && a->ndim == 0;
}

/* Of a row whose inputs differ: what wrote the one that differs most. Of a module's
 * gradients nobody may have: what is `behind` explains them, as does the one around. */
static usc_diff_kind trace_back(usc_diff *d, const both *c, int64_t i, int64_t behind)
{
    usc_diff_row *row = &d->row[i];
    const usc_call_arg *a = &c->a.arg[row->in_arg];
    const int other = usc_diff_partner(&c->b, a, row->in_arg);
    const int64_t at_a = writer_of(&d->list[0], row->call_a, a->tensor);
    const int64_t at_b = writer_of(&d->list[1], row->call_b, c->b.arg[other].tensor);
    const double height = usc_diff_height(&row->in);
    const bool narrow = usc_diff_rounding(a->dtype_name) > 0x1p-24;
    /* What is made between modules is of the one around them, which tells. */
    if (d->options.modules && row->parent >= 0 && (at_a < 0 || at_b < 0))
        return USC_DIFF_INHERITED;
    if (behind >= 0 && (at_a < 0 || at_b < 0)) {
        row->from = behind;
        return USC_DIFF_INHERITED;
    }
    if (at_a < 0 && at_b < 0) {
        const usc_hash128 key = key_of_version(a->version);
        const int64_t *first = usc_keys_find(&d->entered, key);
        if (first == NULL && !(height > (narrow ? ENTERS_NARROW : ENTERS)))
            return USC_DIFF_INHERITED;
        if (first == NULL) {
            (void)usc_keys_put(&d->entered, key, i);
            row->number = is_number(a);
            return USC_DIFF_ENTERED;
        }
        row->from = row->source = *first;
        return USC_DIFF_INHERITED;
    }
    const int64_t from_a = at_a >= 0 ? d->row_of[0][at_a] : -1;
    const int64_t from_b = at_b >= 0 ? d->row_of[1][at_b] : -1;
    /* Of another shape, it may be that they are no partners: nothing is told by that. */
    if ((from_a < 0 || from_b < 0) && !row->in.reshaped &&
        height > (narrow ? LONE_NARROW : ENTERS)) {
        if (at_a >= 0 && from_a < 0) row->lone[0] = d->list[0].call[at_a].sequence;
        if (at_b >= 0 && from_b < 0) row->lone[1] = d->list[1].call[at_b].sequence;
        return USC_DIFF_UNPAIRED;
    }
    row->from = from_a;
    if (from_a >= 0 && from_a != i) {
        const usc_diff_row *writer = &d->row[from_a];
        row->source = usc_diff_begins(writer->kind) ? from_a : writer->source;
    }
    return USC_DIFF_INHERITED;
}

/* What a call is made of: of a module's forward about the calls inside, of its backward
 * about two for each of these. */
static double calls_in(const usc_diff_list *l, const usc_diff_call *c)
{
    const int64_t at = c->forward != 0 ? usc_diff_list_index(l, c->forward) : -1;
    if (at >= 0) return 2 * calls_in(l, &l->call[at]);
    return (c->flags & USC_DIFF_FORWARD) != 0 ? (double)(c->sequence - c->begun) : 1;
}

/* Of the forwards inside that of row i the one whose results are furthest apart; -1:
 * there is none, or they are the same. */
static int64_t furthest_inside(const usc_diff *d, const usc_diff_call *a, int64_t i)
{
    int64_t found = -1;
    if ((a->flags & USC_DIFF_FORWARD) == 0) return -1;
    for (int64_t k = i - 1; k >= 0 && d->row[k].call_a > a->begun; k--)
        if (usc_diff_height(&d->row[k].out) >
            (found < 0 ? 0 : usc_diff_height(&d->row[found].out)))
            found = k;
    return found;
}

/* A result that is further apart than what it was made of explains. */
static bool is_grown(const usc_diff_row *row, double from)
{
    const double out = usc_diff_height(&row->out);
    return out > GROWTH * from && out > GROWTH_LIMIT * row->limit;
}

/* A view shows what it was taken of, of which nothing was kept for its sake. */
static void look_through(const both *c, usc_diff_row *row)
{
    if (!c->unkept || usc_diff_height(&row->in) > 0) return;
    for (int i = 0; i < c->a.n_args; i++) {
        const usc_call_arg *arg = &c->a.arg[i];
        if (arg->role != USC_ROLE_IN || arg->version != c->a.arg[row->out_arg].version)
            continue;
        row->in = row->out;
        row->in_arg = i;
        return;
    }
}

static usc_diff_kind kind_of(usc_diff *d, const both *c, int64_t i)
{
    usc_diff_row *row = &d->row[i];
    const usc_diff_call *a =
        &d->list[0].call[usc_diff_list_index(&d->list[0], row->call_a)];
    const usc_diff_call *b =
        &d->list[1].call[usc_diff_list_index(&d->list[1], row->call_b)];
    const usc_diff_behind behind = usc_diff_look_behind(d, a);
    const double own = usc_diff_height(&row->in), in = fmax(own, behind.height);
    const double out = usc_diff_height(&row->out);
    if (row->out_arg < 0) return USC_DIFF_SAME; /* no results, or memory left as it was */
    if (row->out.basis == USC_DIFF_BY_NOTHING) return USC_DIFF_UNTOLD;
    if (!(out > 0)) return USC_DIFF_SAME;
    row->limit = limit_of(c, &c->a.arg[row->out_arg]) *
                 sqrt(fmax(calls_in(&d->list[0], a), calls_in(&d->list[1], b)));
    if ((a->flags & b->flags & USC_DIFF_DRAWS) != 0 && a->random != b->random &&
        !(in > 0))
        return USC_DIFF_DREW;
    const int64_t inside = furthest_inside(d, a, i);
    if (!(in > 0) && c->unkept) return USC_DIFF_UNTOLD;
    if (!(in > 0) && !(out > row->limit)) return USC_DIFF_ROUNDED;
    if (!(in > 0) && inside >= 0 &&
        !is_grown(row, usc_diff_height(&d->row[inside].out))) {
        row->from = inside;
        return USC_DIFF_INHERITED;
    }
    if (!(in > 0)) return USC_DIFF_MADE;
    if (!(own > 0)) row->from = behind.row;
    const usc_diff_kind kind =
        own > 0 ? trace_back(d, c, i, c->backward ? behind.row : -1) : USC_DIFF_INHERITED;
    if (kind != USC_DIFF_INHERITED || (!c->backward && behind.row >= 0)) return kind;
    if (inside >= 0) return USC_DIFF_INHERITED;
    /* Calls have a judge; a sum that cancels grows by itself. */
    return d->options.modules && is_grown(row, in) ? USC_DIFF_GREW : USC_DIFF_INHERITED;
}

/* Whether all results are known to be equal; *basis is the weakest by which. */
static bool is_plainly_same(const usc_diff *d, const usc_diff_call *a,
                            const usc_diff_call *b, usc_diff_basis *basis)
{
    int n = 0;
    *basis = USC_DIFF_BY_BITS;
    if (a->n_args != b->n_args) return false;
    for (int i = 0; i < a->n_args; i++) {
        const usc_diff_arg *x = &d->list[0].arg[a->first_arg + i];
        const usc_diff_arg *y = &d->list[1].arg[b->first_arg + i];
        const usc_diff_tensor *tx = usc_diff_table_find(&d->list[0].tensors, x->tensor);
        const usc_diff_tensor *ty = usc_diff_table_find(&d->list[1].tensors, y->tensor);
        bool equal;
        if (x->path != y->path || tx == NULL || ty == NULL) return false;
        if (x->role == USC_ROLE_IN) continue;
        const usc_diff_basis own = usc_diff_known(d, tx, ty, &equal);
        if (!equal) return false;
        if (own < *basis) *basis = own;
        n++;
    }
    return n > 0 || a->n_args == 0;
}

usc_status usc_diff_compare(usc_diff *d, int64_t i, usc_error *err)
{
    usc_diff_row *row = &d->row[i];
    both c = {0};
    row->in_arg = row->out_arg = -1;
    row->from = row->source = -1;
    const usc_diff_call *a =
        &d->list[0].call[usc_diff_list_index(&d->list[0], row->call_a)];
    const usc_diff_call *b =
        &d->list[1].call[usc_diff_list_index(&d->list[1], row->call_b)];
    if (is_plainly_same(d, a, b, &row->out.basis) ||
        ((a->flags | b->flags) & USC_DIFF_UNWRITTEN) != 0) {
        row->kind = USC_DIFF_SAME;
        return USC_OK;
    }
    c.backward = (a->flags & USC_DIFF_BACKWARD) != 0;
    usc_arena_reset(&d->texts);
    usc_status st = usc_diff_read(d, 0, row->call_a, &c.a, err);
    if (st == USC_OK) st = usc_diff_read(d, 1, row->call_b, &c.b, err);
    if (st == USC_OK) look_at_inputs(&c);
    if (st == USC_OK) st = find_worst(d, &c, true, row, err);
    if (st == USC_OK && usc_diff_height(&row->out) > 0)
        st = find_worst(d, &c, false, row, err);
    if (st == USC_OK && row->out_arg >= 0) look_through(&c, row);
    if (st == USC_OK) row->kind = kind_of(d, &c, i);
    /* Calls have a judge, modules a limit, which counts roundings of the result's dtype:
     * in 16 bits it is wider than what a computation that is too narrow loses. */
    if (st == USC_OK && d->options.modules && row->out_arg >= 0)
        row->computes = usc_diff_rounding(c.a.arg[row->out_arg].dtype_name) > 0x1p-24;
    return st;
}
