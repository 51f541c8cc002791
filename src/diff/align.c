// SPDX-License-Identifier: Apache-2.0
// Pairing of two lists of calls: anchors first, then bands between them. diff.h
#include "diff/align.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* What a call is told by, from what is most its own to what is least. A run is what a
 * call and those behind it are. */
enum { BY_LINEAGE, BY_PRODUCERS, BY_ITSELF, BY_RUN, BY_SHORT_RUN, BY_PLACE, N_LEVELS };
enum { RUN = 24, SHORT_RUN = 4, DEEPEST = 48 };

typedef struct aligner {
    const usc_diff_item *item[2];
    uint64_t *key[2][N_LEVELS];
    usc_diff_pair *pair;
    int64_t n;
    bool failed;
} aligner;

/* The part of both lists at hand: from[side] to to[side]. */
typedef struct span {
    int64_t from[2], to[2];
} span;

static const char *const texts[USC_N_DIFF_HOW] = {
#define TEXT(id, text) [USC_DIFF_##id] = (text),
    USC_DIFF_HOW_LIST(TEXT)
#undef TEXT
};

const char *usc_diff_how_text(usc_diff_how how)
{
    return (unsigned)how < USC_N_DIFF_HOW ? texts[how] : "unknown";
}

uint64_t usc_diff_mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 29);
}

/* ---- likeness ---- */

usc_diff_how usc_diff_how_of(const usc_diff_item *a, const usc_diff_item *b)
{
    const bool module = a->module == b->module, shape = a->shape == b->shape;
    if (a->place != b->place) return USC_N_DIFF_HOW;
    if (a->op != b->op)
        return module && a->module != 0 && a->output != 0 && a->output == b->output
                   ? USC_DIFF_OUTPUT
                   : USC_N_DIFF_HOW;
    if (!module) return shape ? USC_DIFF_SHAPE : USC_N_DIFF_HOW;
    if (!shape) return USC_DIFF_MODULE;
    if (a->dtype != b->dtype) return USC_DIFF_DTYPE;
    return a->given == b->given ? USC_DIFF_EXACT : USC_DIFF_GIVEN;
}

/* What a pair is worth; 0: it is none. An exact pair is worth more than two that are not:
 * nothing is torn apart for them. */
static int worth(const usc_diff_item *a, const usc_diff_item *b)
{
    static const int of[USC_N_DIFF_HOW + 1] = {
        [USC_DIFF_EXACT] = 16, [USC_DIFF_GIVEN] = 13, [USC_DIFF_DTYPE] = 12,
        [USC_DIFF_MODULE] = 9, [USC_DIFF_SHAPE] = 6,  [USC_DIFF_OUTPUT] = 3};
    const int plain = of[usc_diff_how_of(a, b)];
    return plain > 0
               ? plain + 2 * (a->producers == b->producers) + (a->lineage == b->lineage)
               : 0;
}

static void take(aligner *al, int64_t a, int64_t b)
{
    const usc_diff_how how = usc_diff_how_of(&al->item[0][a], &al->item[1][b]);
    if (how < USC_N_DIFF_HOW) al->pair[al->n++] = (usc_diff_pair){a, b, how};
}

/* ---- keys ---- */

/* Keys of runs: of `length` calls from each on, rolled from the end. */
static void fill_runs(const uint64_t *key, int64_t n, int length, uint64_t *out)
{
    const uint64_t base = 0x9e3779b97f4a7c15u;
    uint64_t power = 1, sum = 0;
    for (int i = 0; i < length; i++)
        power *= base;
    for (int64_t i = n - 1; i >= 0; i--) {
        sum = sum * base + key[i];
        if (i + length < n) sum -= key[i + length] * power;
        out[i] = usc_diff_mix(0, sum);
    }
}

static bool fill_keys(aligner *al, int side, int64_t n)
{
    uint64_t *block = malloc((size_t)(n + 1) * N_LEVELS * sizeof *block);
    if (block == NULL) return false;
    for (int level = 0; level < N_LEVELS; level++)
        al->key[side][level] = block + level * (n + 1);
    for (int64_t i = 0; i < n; i++) {
        const usc_diff_item *c = &al->item[side][i];
        const uint64_t parts[] = {c->module, c->op, c->shape, c->dtype, c->given};
        uint64_t h = c->place;
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            h = usc_diff_mix(h, parts[k]);
            if (k == 1) al->key[side][BY_PLACE][i] = h;
        }
        al->key[side][BY_ITSELF][i] = h;
        al->key[side][BY_PRODUCERS][i] = usc_diff_mix(h, c->producers);
        al->key[side][BY_LINEAGE][i] = usc_diff_mix(h, c->lineage);
    }
    fill_runs(al->key[side][BY_ITSELF], n, RUN, al->key[side][BY_RUN]);
    fill_runs(al->key[side][BY_ITSELF], n, SHORT_RUN, al->key[side][BY_SHORT_RUN]);
    return true;
}

/* ---- anchors ---- */

typedef struct slot {
    uint64_t key;
    int64_t at[2];
    int count[2]; /* 2: more than once */
} slot;

typedef struct anchor {
    int64_t a, b;
} anchor;

static slot *slot_of(slot *table, size_t size, uint64_t key)
{
    for (size_t i = (size_t)key;; i++) {
        slot *s = &table[i & (size - 1)];
        if (s->key == key || (s->count[0] | s->count[1]) == 0) return s;
    }
}

/* Calls that stand once in each part of the span, in the order of A; their number, -1
 * without memory. */
static int64_t find_unique(const aligner *al, const span *s, int level, anchor *out)
{
    size_t size = 16;
    int64_t n = 0;
    while ((int64_t)size < 2 * (s->to[0] - s->from[0] + s->to[1] - s->from[1]))
        size *= 2;
    slot *table = calloc(size, sizeof *table);
    if (table == NULL) return -1;
    for (int side = 0; side < 2; side++)
        for (int64_t i = s->from[side]; i < s->to[side]; i++) {
            slot *at = slot_of(table, size, al->key[side][level][i]);
            at->key = al->key[side][level][i];
            at->at[side] = i;
            if (at->count[side] < 2) at->count[side]++;
        }
    for (int64_t i = s->from[0]; i < s->to[0]; i++) {
        const slot *at = slot_of(table, size, al->key[0][level][i]);
        if (at->count[0] == 1 && at->count[1] == 1) out[n++] = (anchor){i, at->at[1]};
    }
    free(table);
    return n;
}

/* Keeps the longest part that ascends in B as well; its length, -1 without memory. */
static int64_t keep_ascending(anchor *list, int64_t n)
{
    int64_t *tail = malloc((size_t)(2 * n + 1) * sizeof *tail), length = 0;
    if (tail == NULL) return -1;
    int64_t *before = tail + n;
    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = length;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (list[tail[middle]].b < list[i].b)
                low = middle + 1;
            else
                high = middle;
        }
        before[i] = low > 0 ? tail[low - 1] : -1;
        tail[low] = i;
        if (low == length) length++;
    }
    int64_t at = length > 0 ? tail[length - 1] : -1;
    for (int64_t k = length - 1; k >= 0; k--) {
        tail[k] = at;
        at = before[at];
    }
    for (int64_t k = 0; k < length; k++)
        list[k] = list[tail[k]];
    free(tail);
    return length;
}

/* ---- bands ---- */

enum { BAND = 1024, WHOLE = 1 << 20, SMALL = 256 };
enum { UP = 1, LEFT = 2, BOTH = 3 };

/* A table of n rows of at most `width` cells around the line between its corners; two
 * bits each tell the way back. Rows are of the longer list. */
typedef struct band {
    const usc_diff_item *row, *column;
    int64_t n, m, width;
    unsigned char *way;
    int32_t *score; /* two rows */
} band;

static int64_t first_of(const band *t, int64_t i)
{
    const int64_t middle = (int64_t)((double)i * (double)t->m / (double)t->n);
    const int64_t first = middle - t->width / 2, last = t->m + 1 - t->width;
    return first < 0 || last < 0 ? 0 : first > last ? last : first;
}

static void set_way(band *t, int64_t i, int64_t k, int way)
{
    const int64_t bit = (i * t->width + k) * 2;
    t->way[bit / 8] |= (unsigned char)(way << (bit % 8));
}

static int way_of(const band *t, int64_t i, int64_t j)
{
    const int64_t bit = (i * t->width + j - first_of(t, i)) * 2;
    return t->way[bit / 8] >> (bit % 8) & 3;
}

/* Row i of scores from the one before; both hold `width` cells. */
static void fill_row(band *t, int64_t i, const int32_t *above, int32_t *here)
{
    const int64_t first = first_of(t, i), shift = first - first_of(t, i - 1);
    for (int64_t k = 0; k < t->width; k++) {
        const int64_t j = first + k, up = k + shift;
        int32_t best = -1;
        int way = LEFT;
        if (j > 0 && up - 1 < t->width && up > 0) {
            const int gain = worth(&t->row[i - 1], &t->column[j - 1]);
            if (gain > 0) best = above[up - 1] + gain, way = BOTH;
        }
        if (k > 0 && here[k - 1] > best) best = here[k - 1], way = LEFT;
        if (up < t->width && above[up] > best) best = above[up], way = UP;
        here[k] = best < 0 ? 0 : best;
        set_way(t, i, k, way);
    }
}

static void walk_back(aligner *al, const band *t, const span *s, bool swapped)
{
    const int64_t begun = al->n;
    int64_t i = t->n, j = t->m;
    while (i > 0 && j > 0) {
        const int way = way_of(t, i, j);
        if (way == BOTH)
            take(al, s->from[0] + (swapped ? j : i) - 1,
                 s->from[1] + (swapped ? i : j) - 1);
        if (way != LEFT) i--;
        if (way != UP) j--;
        if (i > 0 && j < first_of(t, i)) j = first_of(t, i); /* left the band */
    }
    for (int64_t low = begun, high = al->n - 1; low < high; low++, high--) {
        const usc_diff_pair kept = al->pair[low];
        al->pair[low] = al->pair[high];
        al->pair[high] = kept;
    }
}

static void align_band(aligner *al, const span *s)
{
    const int64_t n[2] = {s->to[0] - s->from[0], s->to[1] - s->from[1]};
    if (n[0] == 0 || n[1] == 0) return;
    const int rows = n[0] >= n[1] ? 0 : 1;
    band t = {.row = al->item[rows] + s->from[rows],
              .column = al->item[1 - rows] + s->from[1 - rows],
              .n = n[rows],
              .m = n[1 - rows]};
    t.width = t.n * (t.m + 1) <= WHOLE || t.m < BAND ? t.m + 1 : BAND;
    t.way = calloc((size_t)((t.n + 1) * t.width / 4 + 2), 1);
    t.score = calloc((size_t)(2 * t.width), sizeof *t.score);
    if (t.way != NULL && t.score != NULL) {
        for (int64_t i = 1; i <= t.n; i++)
            fill_row(&t, i, t.score + (i - 1) % 2 * t.width, t.score + i % 2 * t.width);
        walk_back(al, &t, s, rows == 1);
    } else {
        al->failed = true;
    }
    free(t.way);
    free(t.score);
}

/* ---- the whole ---- */

static void align_span(aligner *al, span s, int level, int depth);

/* Pairs anchors and what lies between them. */
static void align_between(aligner *al, const span *s, const anchor *list, int64_t n,
                          int level, int depth)
{
    int64_t a = s->from[0], b = s->from[1];
    for (int64_t k = 0; k < n; k++) {
        align_span(al, (span){{a, b}, {list[k].a, list[k].b}}, level, depth + 1);
        take(al, list[k].a, list[k].b);
        a = list[k].a + 1;
        b = list[k].b + 1;
    }
    align_span(al, (span){{a, b}, {s->to[0], s->to[1]}}, level, depth + 1);
}

static void align_inner(aligner *al, const span *s, int level, int depth)
{
    const int64_t shorter = s->to[0] - s->from[0] < s->to[1] - s->from[1]
                                ? s->to[0] - s->from[0]
                                : s->to[1] - s->from[1];
    if (shorter == 0) return;
    if (shorter * (s->to[0] - s->from[0] + s->to[1] - s->from[1]) <= SMALL) {
        align_band(al, s);
        return;
    }
    anchor *list = malloc((size_t)(s->to[0] - s->from[0]) * sizeof *list);
    int64_t n = 0;
    if (list == NULL) al->failed = true;
    for (; list != NULL && level < N_LEVELS && n == 0; level += n == 0) {
        n = find_unique(al, s, level, list);
        if (n > 0) n = keep_ascending(list, n);
        if (n < 0) break;
    }
    if (n < 0) al->failed = true;
    if (n > 0)
        align_between(al, s, list, n, depth < DEEPEST ? level : level + 1, depth);
    else if (n == 0)
        align_band(al, s);
    free(list);
}

/* Equal ends are paired at once, by the key at hand. */
static void align_span(aligner *al, span s, int level, int depth)
{
    const int by = level < BY_ITSELF ? level : BY_ITSELF;
    const uint64_t *const key[2] = {al->key[0][by], al->key[1][by]};
    for (; s.from[0] < s.to[0] && s.from[1] < s.to[1] &&
           key[0][s.from[0]] == key[1][s.from[1]];
         s.from[0]++, s.from[1]++)
        take(al, s.from[0], s.from[1]);
    int64_t n_behind = 0;
    for (; s.from[0] < s.to[0] && s.from[1] < s.to[1] &&
           key[0][s.to[0] - 1] == key[1][s.to[1] - 1];
         n_behind++)
        s.to[0]--, s.to[1]--;
    if (!al->failed) align_inner(al, &s, level, depth);
    for (int64_t i = 0; i < n_behind; i++)
        take(al, s.to[0] + i, s.to[1] + i);
}

usc_status usc_diff_align(const usc_diff_item *a, int64_t n_a, const usc_diff_item *b,
                          int64_t n_b, usc_diff_pair **out, int64_t *n, usc_error *err)
{
    aligner al = {.item = {a, b}};
    *out = NULL;
    *n = 0;
    al.pair = malloc((size_t)((n_a < n_b ? n_a : n_b) + 1) * sizeof *al.pair);
    if (al.pair != NULL && fill_keys(&al, 0, n_a) && fill_keys(&al, 1, n_b))
        align_span(&al, (span){{0, 0}, {n_a, n_b}}, 0, 0);
    else
        al.failed = true;
    free(al.key[0][0]);
    free(al.key[1][0]);
    if (al.failed) {
        free(al.pair);
        return usc_no_memory("pairing", err);
    }
    *out = al.pair;
    *n = al.n;
    return USC_OK;
}
