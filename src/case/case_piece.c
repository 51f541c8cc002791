// SPDX-License-Identifier: Apache-2.0
// A large call, judged piece by piece: some of its outputs' places at a time, so that
// the operands of one piece are all that memory has to hold. A large product of matrices
// is judged on some rows, each over the whole of its sum: those at the borders of tiles,
// some by chance, and those whose checksum is furthest off, which accuses nobody and only
// chooses. What is found of the pieces becomes one finding for each output. Neighbours:
// case_state.h; findings_call.c, which joins.
#include "case/case_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define LARGE ((int64_t)1 << 23) /* elements, from which a call falls into pieces */
#define WORK 0x1p32              /* products of two numbers, from which rows are chosen */

enum { FEWEST = 256, STRIKING = 32 }; /* rows by chance, those that stand out */

static usc_case_stage take_checksums, take_piece;

static void *room_for(usc_case *c, size_t n, size_t size)
{
    if (n > SIZE_MAX / 2 / size) c->keeping.failed = true;
    return c->keeping.failed ? NULL : usc_arena_take(&c->keeping, n * size + 1);
}

static const char *copied(usc_case *c, const char *text)
{
    char *out = room_for(c, strlen(text) + 1, 1);
    return out != NULL ? strcpy(out, text) : "";
}

static int64_t numel(const usc_case_form_of *of)
{
    int64_t n = 1; /* of a tensor that exists: it fits */
    for (int d = 0; d < of->ndim; d++)
        n *= of->sizes[d];
    return n;
}

/* ---- whether ---- */

static usc_status ask_pieces(usc_case *c)
{
    const struct usc_case_whole *w = &c->whole;
    int64_t all = 0, most = w->n_inputs;
    for (int i = 0; i < w->n_outputs; i++) {
        const int64_t n = numel(&w->outputs[i]);
        all += n;
        if (n > most) most = n;
    }
    c->stage = NULL;
    if (most < w->large && all < w->large) return USC_OK;
    return usc_case_ask(c, USC_WANT_PIECE, 0, take_piece);
}

usc_status usc_case_begin_call(usc_case *c, const usc_case_call *call, usc_error *err)
{
    usc_case_forget(c);
    usc_arena_reset(&c->work);
    c->reading = (struct usc_case_reading){0};
    c->apart = (struct usc_case_apart){0};
    c->whole = (struct usc_case_whole){.large = c->large > 0 ? c->large : LARGE,
                                       .n_inputs = call->n_inputs,
                                       .n_rows = call->n_rows,
                                       .first = c->found->n};
    struct usc_case_whole *w = &c->whole;
    const char *op = call->op != NULL ? call->op : "";
    w->seed[0] = usc_hash64_bytes(op, strlen(op));
    w->seed[1] = (uint64_t)call->number;
    usc_case_form_of *outputs = room_for(c, (size_t)call->n_outputs, sizeof *outputs);
    if (outputs == NULL) return usc_no_memory("a call", err);
    for (int i = 0; i < call->n_outputs; i++) {
        outputs[i] = call->outputs[i];
        outputs[i].path = copied(c, call->outputs[i].path);
    }
    w->outputs = outputs;
    w->n_outputs = call->n_outputs;
    c->o.path = "a call";
    const double work = c->work_of_sample > 0 ? c->work_of_sample : WORK;
    if (call->n_rows > 0 && w->n_outputs == 1 &&
        (double)numel(&w->outputs[0]) * call->n_products >= work)
        return usc_case_ask(c, USC_WANT_CHECKSUM, 0, take_checksums);
    return ask_pieces(c);
}

/* ---- which rows ---- */

static uint64_t drawn(const struct usc_case_whole *w, int i)
{
    const uint64_t of[3] = {w->seed[0], w->seed[1], (uint64_t)i};
    return usc_hash64_bytes(of, sizeof of);
}

static void mark(uint8_t *marks, int64_t n, int64_t row)
{
    if (row >= 0 && row < n) marks[row] = 1;
}

/* The first and the last, and those at both sides of where a tile may end. */
static void mark_borders(uint8_t *marks, int64_t n)
{
    for (int64_t i = 0; i < 3; i++) {
        mark(marks, n, i);
        mark(marks, n, n - 1 - i);
    }
    for (int64_t tile = 8; tile < n; tile *= 2) {
        const int64_t last = n / tile * tile;
        mark(marks, n, tile - 1);
        mark(marks, n, tile);
        mark(marks, n, last - 1);
        mark(marks, n, last);
    }
}

static double off_by(const double *off, int64_t i)
{
    return isnan(off[i]) ? (double)INFINITY : off[i];
}

/* Those whose checksum is furthest off, earlier ones first. */
static void mark_striking(uint8_t *marks, const double *off, int64_t n, int n_at_most)
{
    int64_t most[STRIKING];
    int n_most = 0;
    for (int64_t i = 0; i < n; i++) {
        int at = n_most;
        while (at > 0 && off_by(off, i) > off_by(off, most[at - 1]))
            at--;
        if (at == n_at_most) continue;
        if (n_most < n_at_most) n_most++;
        memmove(&most[at + 1], &most[at], (size_t)(n_most - 1 - at) * sizeof most[0]);
        most[at] = i;
    }
    for (int k = 0; k < n_most; k++)
        marks[most[k]] = 1;
}

static void choose(usc_case *c, const double *off)
{
    struct usc_case_whole *w = &c->whole;
    const int64_t n = w->n_rows;
    const int fewest = c->fewest > 0 ? c->fewest : FEWEST;
    uint8_t *marks = usc_case_room(c, n, 1);
    if (marks == NULL) return; /* the driver tells */
    mark_borders(marks, n);
    for (int i = 0; i < fewest; i++)
        marks[drawn(w, i) % (uint64_t)n] = 1;
    mark_striking(marks, off, n, fewest < STRIKING ? fewest : STRIKING);
    int64_t n_chosen = 0;
    for (int64_t i = 0; i < n; i++)
        n_chosen += marks[i];
    if (2 * n_chosen > n) return;
    int64_t *rows = room_for(c, (size_t)n_chosen, sizeof *rows);
    for (int64_t i = 0; i < n && rows != NULL; i++)
        if (marks[i]) rows[w->n_chosen++] = i;
    w->chosen = rows;
}

static usc_status take_checksums(usc_case *c, usc_error *err)
{
    const usc_tensor *off = c->given.a;
    (void)err;
    if (usc_case_given(c, USC_GIVEN_AS_ASKED) && off != NULL && off->dtype == USC_F64 &&
        off->ndim == 1 && off->sizes[0] == c->whole.n_rows) {
        const double *values = usc_case_wide(c, off);
        if (values != NULL) choose(c, values);
    }
    if (c->whole.chosen == NULL) return ask_pieces(c);
    return usc_case_ask(c, USC_WANT_PIECE, 0, take_piece);
}

const int64_t *usc_case_rows(const usc_case *c, int64_t *n)
{
    *n = c->whole.n_chosen;
    return c->whole.chosen;
}

/* ---- one that was given ---- */

static bool put_piece(usc_case *c)
{
    struct usc_case_whole *w = &c->whole;
    if (w->n_pieces == w->room) {
        void *more = usc_arena_grow(&c->keeping, w->pieces, w->n_pieces, &w->room,
                                    sizeof *w->pieces);
        if (more != NULL) w->pieces = more;
    }
    if (c->keeping.failed) return false;
    w->pieces[w->n_pieces++] = c->found->n;
    return true;
}

void usc_case_put_part(usc_case *c, const usc_case_part *part)
{
    struct usc_case_whole *w = &c->whole;
    if (w->n_pieces == 0) return;
    if (w->n_parts == w->parts_room) {
        void *more = usc_arena_grow(&c->keeping, w->parts, w->n_parts, &w->parts_room,
                                    sizeof *w->parts);
        if (more != NULL) w->parts = more;
    }
    if (!c->keeping.failed) w->parts[w->n_parts++] = (usc_case_parts){c->found->n, *part};
}

/* How many pieces there are, by the size of the present one. */
static double n_pieces(const usc_case *c)
{
    const struct usc_case_whole *w = &c->whole;
    double all = 0;
    for (int i = 0; i < w->n_outputs; i++)
        all = fmax(all, (double)numel(&w->outputs[i]));
    if (w->chosen != NULL) all *= (double)w->n_chosen / (double)w->n_rows;
    return fmax(1, floor(all / fmax(1, (double)c->n)));
}

bool usc_case_is_sample(usc_case *c)
{
    struct usc_case_whole *w = &c->whole;
    if (w->n_pieces == 0) return true;
    if (w->settled) return false; /* the call is accused already */
    if (w->sample == 0) {
        w->sample = 1 + (size_t)fmod((double)drawn(w, -1), n_pieces(c));
        if (w->sample < w->n_pieces) w->sample = w->n_pieces;
    }
    return w->sample == w->n_pieces;
}

/* ---- pieces beside one that is accused ---- */

#define FAR_WORSE 4 /* times as far off: who is no worse is told by the one that is */

static bool is_worse(bool bad, double max, bool than_bad, double than_max)
{
    return bad != than_bad ? bad : max > than_max;
}

bool usc_case_is_far_worse(const usc_case *c)
{
    const struct usc_case_whole *w = &c->whole;
    return is_worse(c->seen.bad, c->seen.max, w->settled_bad, FAR_WORSE * w->settled_max);
}

void usc_case_see(usc_case *c, const usc_judgement *j)
{
    if (c->seen.any) return; /* before, or by another reading */
    c->seen.any = true;
    c->seen.bad = j->n_bad > 0;
    c->seen.max = j->max;
}

/* What is accused of the last piece settles the call, where it is worse. It counts as far
 * off as it was at first sight, as what comes after it is compared: appeals widen what an
 * element may be, and so make it look nearer. */
void usc_case_settle(usc_case *c)
{
    struct usc_case_whole *w = &c->whole;
    if (w->n_pieces == 0 || !usc_verdict_flagged(c->f.verdict)) return;
    const bool worse =
        !w->accused || is_worse(c->seen.bad, c->seen.max, w->settled_bad, w->settled_max);
    w->accused = true;
    if (!worse) return;
    w->settled_bad = c->seen.bad;
    w->settled_max = c->seen.max;
}

usc_status usc_case_go_on(usc_case *c, bool *decides, usc_error *err)
{
    struct usc_case_whole *w = &c->whole;
    *decides = false;
    if (w->n_pieces == 0)
        return usc_error_set(err, USC_E_ARG, -1, "no piece of the call was given");
    const int k = (int)w->n_pieces - 1;
    const usc_finding *worst = usc_findings_worst_from(c->found, w->pieces[k]);
    if (worst != NULL && (w->worst == NULL || usc_finding_before(worst, w->worst))) {
        w->worst = worst;
        *decides = true;
    }
    w->settled = w->accused;
    return usc_case_ask(c, USC_WANT_PIECE, k + 1, take_piece);
}

/* ---- all of them ---- */

/* The finding of piece k on an output, or on the call as a whole; NULL where there is
 * none: the output is in another piece. */
static size_t find(const usc_case *c, size_t k, const char *path)
{
    const struct usc_case_whole *w = &c->whole;
    const size_t end = k + 1 < w->n_pieces ? w->pieces[k + 1] : w->end;
    size_t i = w->pieces[k];
    while (i < end && strcmp(c->found->items[i]->path, path) != 0 &&
           c->found->items[i]->path[0] != '\0')
        i++;
    return i < end ? i : SIZE_MAX;
}

static int64_t place(const struct usc_case_whole *w, const usc_case_part *p, int64_t i)
{
    if (p->many == 0) return i;
    const int64_t inner = i % p->inner, rest = i / p->inner;
    const int64_t outer = rest / p->many, row = p->first + rest % p->many;
    return (outer * p->length + (w->chosen != NULL ? w->chosen[row] : row)) * p->inner +
           inner;
}

/* Where the examples of finding `i` lie in the whole output, `at` in the list. */
static void put_in_place(usc_case *c, size_t i, size_t at)
{
    const struct usc_case_whole *w = &c->whole;
    usc_finding *one = c->found->items[at];
    for (size_t k = 0; k < w->n_parts; k++)
        if (w->parts[k].finding == i)
            for (int e = 0; e < one->n_examples; e++)
                one->examples[e].index =
                    place(w, &w->parts[k].part, one->examples[e].index);
}

static usc_status join_output(usc_case *c, const usc_case_form_of *of, usc_error *err)
{
    const struct usc_case_whole *w = &c->whole;
    const usc_finding **parts = usc_case_room(c, (int64_t)w->n_pieces, sizeof *parts);
    size_t *from = usc_case_room(c, (int64_t)w->n_pieces, sizeof *from);
    if (parts == NULL || from == NULL) return USC_OK; /* the driver tells */
    usc_whole whole = {.parts = parts, .n = numel(of), .ndim = of->ndim};
    memcpy(whole.sizes, of->sizes, sizeof whole.sizes);
    for (size_t k = 0; k < w->n_pieces; k++) {
        const size_t i = find(c, k, of->path);
        if (i == SIZE_MAX) continue;
        from[whole.n_parts] = i;
        parts[whole.n_parts++] = c->found->items[i];
    }
    int decides = 0;
    usc_status st = usc_findings_join(c->found, &whole, &decides, err);
    if (st != USC_OK) return st;
    const int at = usc_findings_count(c->found) - 1;
    put_in_place(c, from[decides], (size_t)at);
    if (w->chosen == NULL) return st;
    char note[160];
    (void)snprintf(
        note, sizeof note,
        "judged on %s of %s rows, each over the whole of its sum; all rows by a "
        "checksum",
        usc_count(w->n_chosen).text, usc_count(w->n_rows).text);
    return usc_findings_note(c->found, at, note, err);
}

/* The findings on whole outputs, in place of those on the pieces. */
static usc_status join(usc_case *c, usc_error *err)
{
    struct usc_case_whole *w = &c->whole;
    w->end = c->found->n;
    usc_status st = USC_OK;
    for (int i = 0; i < w->n_outputs && st == USC_OK; i++)
        st = join_output(c, &w->outputs[i], err);
    if (st != USC_OK) return st;
    usc_findings *f = c->found;
    const size_t n = f->n - w->end;
    memmove(f->items + w->first, f->items + w->end, n * sizeof f->items[0]);
    f->n = w->first + n;
    w->n_pieces = 0;
    return USC_OK;
}

static usc_status take_piece(usc_case *c, usc_error *err)
{
    struct usc_case_whole *w = &c->whole;
    c->stage = NULL;
    if (usc_case_given(c, USC_GIVEN_AS_ASKED)) {
        (void)put_piece(c); /* the driver tells */
        return USC_OK;
    }
    if (usc_case_given(c, USC_GIVEN_FAILED) && w->n_pieces > 0) {
        c->found->n = w->first;
        w->n_pieces = 0;
        return usc_findings_say(c->found, USC_VERDICT_UNJUDGED, "", c->text, err);
    }
    return w->n_pieces > 0 ? join(c, err) : USC_OK;
}
