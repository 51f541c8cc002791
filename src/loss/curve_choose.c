// SPDX-License-Identifier: Apache-2.0
// Which of the names in a file is the loss: docs/reference/loss.md, section 1. Training
// before what is held out, the loss itself before parts of it; then the name with the
// most values, then the most digits, then the more usual name.
#include "loss/curve.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/number.h"

enum { MOST_NAMES = 12, MOST_OTHERS = 4, ENOUGH_DIGITS = 4 };
#define COUNT(x) (sizeof(x) / sizeof(x)[0])

/* ---- how well a name fits ---- */

static bool ends(const char *name, const char *part)
{
    const size_t n = strlen(name), size = strlen(part);
    return n >= size && strcasecmp(name + n - size, part) == 0;
}

const char *usc_curve_bare(const char *name)
{
    const char *bare = name;
    for (const char *at = name; (at = strstr(at, " - ")) != NULL; at += 3)
        bare = at + 3;
    return *bare != '\0' ? bare : name;
}

static bool among(const char *word, size_t n, const char *const *words, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (strlen(words[i]) == n && strncasecmp(word, words[i], n) == 0) return true;
    return false;
}

static bool begins_with_any(const char *word, size_t n, const char *const *heads,
                            size_t n_heads)
{
    for (size_t i = 0; i < n_heads; i++)
        if (n >= strlen(heads[i]) && strncasecmp(word, heads[i], strlen(heads[i])) == 0)
            return true;
    return false;
}

typedef struct word_kinds {
    bool held_out, part, average;
} word_kinds;

/* What the words of a name say, which are joined by anything but letters and digits. */
static word_kinds kinds_of(const char *name)
{
    static const char *const whole[] = {"loss",  "train", "training", "trainer", "lm",
                                        "step",  "total", "global",   "batch",   "iter",
                                        "value", "model", "iteration"};
    static const char *const average[] = {"avg",     "average",  "mean",   "epoch",
                                          "running", "smoothed", "reduced"};
    static const char *const out[] = {"eval", "valid", "test", "dev", "scale", "scaling"};
    word_kinds k = {false, false, false};
    for (const char *at = name; *at != '\0';) {
        size_t n = 0;
        while (isalnum((unsigned char)at[n]))
            n++;
        if (n == 3 && strncasecmp(at, "val", 3) == 0)
            k.held_out = true;
        else if (begins_with_any(at, n, out, COUNT(out)))
            k.held_out = true;
        else if (among(at, n, average, COUNT(average)))
            k.average = true;
        else if (n > 0 && !among(at, n, whole, COUNT(whole)))
            k.part = true;
        at += n + (n == 0);
    }
    return k;
}

/* Columns that W&B writes beside each of a run. */
static bool is_beside(const char *name)
{
    return ends(name, "__MIN") || ends(name, "__MAX") || ends(name, "__step");
}

int usc_curve_rank(const usc_curve_options *options, const char *name)
{
    static const char *const train[] = {"train/loss",    "train_loss",    "train loss",
                                        "training_loss", "training loss", "lm loss",
                                        "loss/train",    "value"};
    const char *bare = usc_curve_bare(name);
    if (options->key != NULL)
        return strcmp(name, options->key) == 0   ? 0
               : strcmp(bare, options->key) == 0 ? 1
                                                 : -1;
    if (is_beside(name)) return -1;
    if (strcasecmp(bare, "loss") == 0) return 0;
    if (among(bare, strlen(bare), train, COUNT(train))) return 1;
    if (strcasestr(bare, "loss") == NULL) return -1;
    const word_kinds k = kinds_of(bare);
    const int tier = k.held_out ? USC_CURVE_HELD_OUT : k.part ? USC_CURVE_PART : 2;
    return tier + 2 * k.average + !ends(bare, "loss");
}

bool usc_curve_is_step(const char *name, size_t n)
{
    static const char *const names[] = {
        "step",        "steps",       "global_step",          "_step",
        "iter",        "iteration",   "iterations",           "it",
        "global step", "num_updates", "global_step/max_steps"};
    static const char *const before[] = {"trainer/", "train/", "training/"};
    if (among(name, n, names, COUNT(names))) return true;
    for (size_t i = 0; i < COUNT(before); i++) {
        const size_t size = strlen(before[i]);
        if (n > size && strncasecmp(name, before[i], size) == 0)
            return among(name + size, n - size, names, COUNT(names));
    }
    return false;
}

bool usc_curve_is_counter(const char *name, size_t n)
{
    static const char *const names[] = {
        "tokens",  "n_tokens",    "num_tokens",       "consumed_tokens",  "total_tokens",
        "samples", "num_samples", "consumed_samples", "consumed samples", "examples"};
    return among(name, n, names, COUNT(names));
}

bool usc_curve_is_held_out(const char *key)
{
    return kinds_of(usc_curve_bare(key)).held_out;
}

/* ---- what is there ---- */

/* Significant digits of a number as it was printed, as far as they matter. */
static int digits_of(double value)
{
    char text[32];
    if (!isfinite(value)) return 0;
    (void)usc_format(text, sizeof text, "%.*e", ENOUGH_DIGITS - 1, value);
    const char *end = strchr(text, 'e');
    int n = ENOUGH_DIGITS;
    while (end != NULL && n > 1 && end[-1] == '0')
        n--, end--;
    return n;
}

static usc_curve_candidate *find(usc_curve_maker *m, const char *name, size_t n)
{
    for (int i = 0; i < m->n_candidates; i++) {
        usc_curve_candidate *c = &m->candidates[i];
        if (strncmp(c->name, name, n) == 0 && c->name[n] == '\0') return c;
    }
    return NULL;
}

/* Room for one more: where there is none, that of the one that fits worst. */
static usc_curve_candidate *make_room(usc_curve_maker *m, int rank)
{
    if (m->candidates == NULL) {
        m->candidates = calloc(USC_CURVE_CANDIDATES, sizeof *m->candidates);
        if (m->candidates == NULL) m->status = usc_no_memory(m->name, m->err);
        if (m->candidates == NULL) return NULL;
    }
    if (m->n_candidates < USC_CURVE_CANDIDATES) return &m->candidates[m->n_candidates++];
    usc_curve_candidate *worst = m->candidates;
    for (int i = 1; i < m->n_candidates; i++)
        if (m->candidates[i].rank > worst->rank) worst = &m->candidates[i];
    return worst->rank > rank ? worst : NULL;
}

/* Keeps a name that does not fit for an error's sentence. */
static void keep_name(usc_curve_maker *m, const char *text, size_t n)
{
    char quoted[USC_CURVE_KEY + 4];
    if (m->n_names == MOST_NAMES || usc_curve_is_step(text, n)) return;
    (void)usc_format(quoted, sizeof quoted, "'%s'", text);
    if (m->names.text != NULL && strstr(m->names.text, quoted) != NULL) return;
    usc_line_add(&m->names, "%s%s", m->n_names > 0 ? ", " : "", quoted);
    m->n_names++;
}

void usc_curve_offer(usc_curve_maker *m, const char *name, size_t n, double value)
{
    char text[USC_CURVE_KEY];
    if (n >= sizeof text || m->status != USC_OK) return;
    usc_curve_candidate *c = find(m, name, n);
    if (c == NULL) {
        memcpy(text, name, n);
        text[n] = '\0';
        const int rank = usc_curve_rank(m->options, text);
        if (rank < 0) keep_name(m, text, n);
        c = rank < 0 ? NULL : make_room(m, rank);
        if (c == NULL) return;
        *c = (usc_curve_candidate){.rank = rank};
        memcpy(c->name, text, n + 1);
    }
    c->n++;
    c->sum_digits += digits_of(value);
}

void usc_curve_take(usc_curve_maker *m, const char *name)
{
    usc_curve_candidate *c = make_room(m, 0);
    if (c == NULL) return;
    (void)usc_format(c->name, sizeof c->name, "%s", name);
    m->key = c->name;
}

/* ---- the choice ---- */

/* Of most values: a loss of 10.02 in the first steps is one of 2.33 later. What ends in
 * zeros has fewer than it is printed with, which the half that is added makes good. */
static int digits_in(const usc_curve_candidate *c)
{
    return c->n > 0 ? (int)((double)c->sum_digits / (double)c->n + 0.5) : 0;
}

static int tier_of(const usc_curve_candidate *c)
{
    return c->rank >= USC_CURVE_HELD_OUT ? 2 : c->rank >= USC_CURVE_PART;
}

/* Whether `c` is to be taken before `than`; of names that a user gave the better fit. */
static bool is_better(const usc_curve_candidate *c, const usc_curve_candidate *than,
                      int64_t most)
{
    const bool few = 2 * c->n < most, than_few = 2 * than->n < most;
    if (tier_of(c) != tier_of(than)) return tier_of(c) < tier_of(than);
    if (few != than_few) return than_few;
    if (digits_in(c) != digits_in(than)) return digits_in(c) > digits_in(than);
    return c->rank < than->rank;
}

/* The last part of a name: of "run 7 - train/loss" and of "train.loss" it is "loss". */
static const char *leaf_of(const char *name)
{
    const char *leaf = usc_curve_bare(name);
    for (const char *at = leaf; *at != '\0'; at++)
        if ((*at == '/' || *at == '.') && at[1] != '\0') leaf = at + 1;
    return leaf;
}

/* Another that is as good, and is called the same but for what stands before it. Of parts
 * (mae_loss and mse_loss, without their sum) none is the loss, whatever they are called. */
static bool is_twin(const usc_curve_candidate *c, const usc_curve_candidate *of,
                    int64_t most)
{
    return c != of && tier_of(c) == tier_of(of) && 2 * c->n >= most &&
           c->rank == of->rank &&
           (tier_of(c) == 1 || strcasecmp(leaf_of(c->name), leaf_of(of->name)) == 0);
}

static void list_others(usc_curve_maker *m, const usc_curve_candidate *chosen)
{
    usc_line l = {0};
    int n = 0;
    for (int i = 0; i < m->n_candidates; i++) {
        const usc_curve_candidate *c = &m->candidates[i];
        if (c == chosen || ++n > MOST_OTHERS) continue;
        usc_line_add(&l, "%s'%s' (%lld", n > 1 ? ", " : "", c->name, (long long)c->n);
        if (digits_in(c) < digits_in(chosen))
            usc_line_add(&l, " of %d digits", digits_in(c));
        usc_line_text(&l, ")");
    }
    if (n > MOST_OTHERS) usc_line_add(&l, " and %d more", n - MOST_OTHERS);
    if (l.failed) m->status = usc_no_memory(m->name, m->err);
    m->others = l.text;
}

static void several(usc_curve_maker *m, const usc_curve_candidate *c,
                    const usc_curve_candidate *twin)
{
    m->status = usc_error_set(m->err, USC_E_ARG, -1,
                              "%s holds several losses: '%s' (%lld values), '%s' (%lld); "
                              "say which with --key '%s', or for each side with --key "
                              "'A=%s,B=%s'",
                              m->name, c->name, (long long)c->n, twin->name,
                              (long long)twin->n, c->name, c->name, twin->name);
}

void usc_curve_choose(usc_curve_maker *m)
{
    if (m->status != USC_OK || m->n_candidates == 0) return;
    int tier = tier_of(&m->candidates[0]);
    int64_t most = 0;
    for (int i = 1; i < m->n_candidates; i++)
        if (tier_of(&m->candidates[i]) < tier) tier = tier_of(&m->candidates[i]);
    for (int i = 0; i < m->n_candidates; i++)
        if (tier_of(&m->candidates[i]) == tier && m->candidates[i].n > most)
            most = m->candidates[i].n;
    const usc_curve_candidate *best = &m->candidates[0];
    for (int i = 1; i < m->n_candidates; i++) {
        const usc_curve_candidate *c = &m->candidates[i];
        if (m->options->key != NULL ? c->rank < best->rank : is_better(c, best, most))
            best = c;
    }
    m->key = best->name;
    if (m->options->key != NULL && best->rank == 0) return;
    for (int i = 0; i < m->n_candidates; i++)
        if (is_twin(&m->candidates[i], best, most)) {
            several(m, best, &m->candidates[i]);
            return;
        }
    list_others(m, best);
}
