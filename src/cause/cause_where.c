// SPDX-License-Identifier: Apache-2.0
// Where it is off: rows and columns by their numbers, whatever the cause. A place is a
// fact and stands beside a cause, or beside that none is known. Neighbours:
// cause_region.c (what these places hold).
#include "cause/cause_state.h"

enum { MOST_LISTED = 6, MOST_POINTS = 4 };
#define TRIFLE 0x1p-10

/* ---- numbers of slices ---- */

typedef struct run {
    int64_t first, n;
} run;

/* The runs of slices that are hit, the first few; how many there are. */
static int64_t runs_of(const uint8_t *hit, int64_t n, run first[MOST_LISTED])
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!hit[i]) continue;
        const int64_t begin = i;
        while (i < n && hit[i])
            i++;
        if (count < MOST_LISTED) first[count] = (run){begin, i - begin};
        count++;
    }
    return count;
}

/* How many slices a pattern takes to come again, two times at least; 0 where none does.
 */
static int64_t period_of(const uint8_t *hit, int64_t n, const run *first, int64_t n_runs)
{
    if (n_runs < 2) return 0;
    const int64_t every = first[1].first - first[0].first;
    if (first[0].first >= every || n < 2 * every) return 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (i - first[0].first + every) % every;
        if ((hit[i] != 0) != (at < first[0].n)) return 0;
    }
    return every;
}

/* Whether all that is hit are single slices as far from each other as the first two. */
static bool in_steps(const uint8_t *hit, int64_t n, const run *first)
{
    const int64_t step = first[1].first - first[0].first;
    int64_t want = first[0].first;
    for (int64_t i = want; i < n; i++) {
        if (!hit[i]) continue;
        if (i != want) return false;
        want += step;
    }
    return true;
}

static void say_run(usc_line *l, run r)
{
    usc_line_add(l, "%lld", (long long)r.first);
    if (r.n == 1) return;
    usc_line_add(l, "%s%lld", r.n == 2 ? " and " : " to ",
                 (long long)(r.first + r.n - 1));
}

/* All that are hit, one by one. */
static void say_list(usc_line *l, const uint8_t *hit, int64_t n, int64_t n_hit)
{
    int64_t said = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!hit[i]) continue;
        usc_line_add(l, "%s%lld",
                     said == 0           ? ""
                     : said + 1 == n_hit ? " and "
                                         : ", ",
                     (long long)i);
        said++;
    }
}

bool usc_cause_number(usc_line *l, const uint8_t *hit, int64_t n, int64_t n_hit)
{
    run first[MOST_LISTED];
    const int64_t n_runs = runs_of(hit, n, first);
    const int64_t every = period_of(hit, n, first, n_runs);
    if (n_runs == 1 && n_hit > 1 && first[0].first + n_hit == n && first[0].first > 0) {
        usc_line_add(l, "from %lld on", (long long)first[0].first);
    } else if (n_runs == 1) {
        say_run(l, first[0]);
    } else if (every > 0 && n_hit > 2) {
        say_run(l, first[0]);
        usc_line_add(l, " of every %lld", (long long)every);
    } else if (n_hit > MOST_LISTED && in_steps(hit, n, first)) {
        int64_t last = n - 1;
        while (!hit[last])
            last--;
        usc_line_add(l, "%lld to %lld in steps of %lld", (long long)first[0].first,
                     (long long)last, (long long)(first[1].first - first[0].first));
    } else if (n_hit <= MOST_LISTED) {
        say_list(l, hit, n, n_hit);
    } else {
        return false;
    }
    return true;
}

/* ---- where it is off ---- */

/* The slices of one axis that something is off in. */
typedef struct side {
    uint8_t *hit;
    int64_t n, n_hit;
} side;

static bool see(usc_cause *c, const marks *m, int axis, side *s)
{
    const int64_t inner = usc_cause_inner(c, axis);
    *s = (side){.n = c->d.sizes[axis]};
    s->hit = usc_cause_room(c, s->n, 1);
    if (s->hit == NULL) return false;
    memset(s->hit, 0, (size_t)s->n);
    for (int64_t i = 0; i < c->d.n; i++)
        if (m->at[i]) s->hit[i / inner % s->n] = 1;
    for (int64_t i = 0; i < s->n; i++)
        s->n_hit += s->hit[i];
    return true;
}

/* Whether slices are a part of all that can be told: by numbers, or as very few. */
static bool is_part(const side *s)
{
    usc_line l = {0};
    if (s->n < 2 || (s->n <= 3 ? s->n_hit == s->n : s->n_hit > s->n / 2)) return false;
    const bool listed = usc_cause_number(&l, s->hit, s->n, s->n_hit);
    usc_line_free(&l);
    return listed || 8 * s->n_hit <= s->n;
}

/* Whether slices are several that follow each other. */
static bool is_run(const side *s)
{
    const uint8_t *first = memchr(s->hit, 1, (size_t)s->n);
    return s->n_hit >= 4 && first != NULL && s->hit + s->n - first >= s->n_hit &&
           memchr(first, 0, (size_t)s->n_hit) == NULL;
}

/* Whether so few slices hold all that is off hardly by chance: with those of the other
 * axes they are full of it, or they alone hold many. Of what is only further off than
 * others (`rest`) single elements tell nothing. */
static bool is_told(const usc_cause *c, const marks *m, const side *s, bool full,
                    bool rest)
{
    const double each = (double)c->d.n / (double)s->n;
    return is_part(s) && (!rest || each > 1 || is_run(s)) &&
           (full || m->n >= 4 * s->n_hit ||
            (double)m->n >= 0.4 * (double)s->n_hit * each);
}

/* Whether the numbers of the slices could be told, or how many they are alone. */
static bool say_side(usc_line *l, const usc_cause *c, int axis, const side *s)
{
    static const char *const heads[] = {"batch", "head", "token", "column"};
    static const char *const plain[] = {"row", "column"};
    const int rank = c->d.ndim;
    const char *what = rank == 1               ? "element"
                       : rank == 2             ? plain[axis]
                       : c->heads && rank == 4 ? heads[axis]
                                               : "slice";
    const char *many = s->n_hit == 1 ? "" : what[0] == 'b' ? "es" : "s";
    usc_line numbers = {0};
    const bool told = usc_cause_number(&numbers, s->hit, s->n, s->n_hit);
    if (told && numbers.text != NULL) {
        const bool one = strstr(numbers.text, "every") != NULL &&
                         strchr(numbers.text, ' ') == strstr(numbers.text, " of every");
        usc_line_add(l, "%s%s %s", what, one ? "" : many, numbers.text);
    } else {
        usc_line_count(l, s->n_hit);
        usc_line_text(l, " of ");
        usc_line_count(l, s->n);
        usc_line_add(l, " %s%s", what, many);
    }
    if (what[0] == 's') usc_line_add(l, " along axis %d", axis);
    usc_line_free(&numbers);
    return told;
}

/* A few elements, each by its place. */
static void say_points(usc_line *l, const usc_cause *c, const marks *m)
{
    int64_t said = 0;
    usc_line_text(l, m->n == 1 ? "element " : "elements ");
    for (int64_t i = 0; i < c->d.n; i++) {
        if (!m->at[i]) continue;
        usc_line_text(l, said == 0 ? "" : said + 1 == m->n ? " and " : ", ");
        for (int a = 0; a < c->d.ndim; a++)
            usc_line_add(l, "%s%lld", a == 0 ? "[" : ", ",
                         (long long)(i / usc_cause_inner(c, a) % c->d.sizes[a]));
        usc_line_text(l, "]");
        said++;
    }
}

/* What is off as told by some marks, nothing where that is most of it; whether by slices
 * whose numbers could be told. */
static bool say_where(usc_cause *c, const marks *m, bool rest, usc_line *l)
{
    side s[USC_MAX_DIMS];
    int n_sides = 0;
    double box = 1;
    bool told = true;
    if (m->n == 0 || 2 * m->n > c->d.n || c->d.ndim == 0) return false;
    for (int axis = 0; axis < c->d.ndim; axis++) {
        if (!see(c, m, axis, &s[axis])) return false;
        box *= (double)(is_part(&s[axis]) ? s[axis].n_hit : s[axis].n);
    }
    const bool full = m->n > MOST_POINTS && (double)m->n >= 0.4 * box;
    for (int axis = 0; axis < c->d.ndim; axis++) {
        if (!is_told(c, m, &s[axis], full, rest)) continue;
        if (n_sides++ > 0) usc_line_text(l, ", ");
        if (c->parts && axis == c->d.ndim - 1)
            usc_line_text(l, s[axis].hit[0] ? "real parts" : "imaginary parts");
        else
            told &= say_side(l, c, axis, &s[axis]);
    }
    if (n_sides > 0) return told;
    if (rest || 16 * usc_cause_fine(c)->n > 17 * m->n + 16)
        return false; /* the rest of noise */
    if (m->n <= MOST_POINTS) {
        say_points(l, c, m);
        return true;
    }
    if (8 * m->n > c->d.n) return false;
    usc_line_count(l, m->n);
    usc_line_text(l, " of ");
    usc_line_count(l, c->d.n);
    usc_line_text(l, " elements");
    return false;
}

/* Elements that are off by a good part of what results usually are. */
static marks gross(usc_cause *c)
{
    marks m = {.at = usc_cause_room(c, c->d.n, 1)};
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double t = value_at(&c->t, i);
        if (!isfinite(t)) continue;
        sum += t * t;
        n++;
    }
    const double room = n > 0 ? sqrt(sum / (double)n) / 16 : 0;
    for (int64_t i = 0; i < c->d.n && m.at != NULL; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        m.at[i] = !(fabs(d - t) <= room) && !same(d, t);
        m.n += m.at[i];
    }
    return m;
}

/* The middle of the errors where `m` has them, or where others are off, or elsewhere, as
 * such and against the size of what is right. */
static void middle_errors(usc_cause *c, const marks *m, bool inside, double *amount,
                          double *share)
{
    double *error = usc_cause_room(c, 2 * (MOST_MIDDLED + 1), sizeof *error);
    const marks *fine = usc_cause_fine(c);
    const int64_t step = usc_cause_step(c->d.n, MOST_MIDDLED);
    int64_t k = 0, seen = 0;
    *amount = *share = 0;
    if (error == NULL || fine == NULL) return;
    const bool others = fine->n > m->n;
    double *part = error + MOST_MIDDLED + 1;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        if ((m->at[i] != 0) != inside || !isfinite(t)) continue;
        if ((!inside && others && !fine->at[i]) || seen++ % step != 0) continue;
        error[k] = isnan(d) ? (double)INFINITY : fabs(d - t);
        part[k] = t != 0 ? error[k] / fabs(t) : error[k] > 0 ? (double)INFINITY : 0;
        k++;
    }
    *amount = usc_cause_middle(error, k);
    *share = usc_cause_middle(part, k);
}

/* Whether what is off by more than all others is so for its place: the errors there are
 * of another size, and not the largest of one kind alone. */
static bool is_apart(usc_cause *c, const marks *m)
{
    enum { APART = 8 };
    double here, there, share_here, share_there;
    middle_errors(c, m, true, &here, &share_here);
    middle_errors(c, m, false, &there, &share_there);
    return here >= APART * there && share_here >= APART * share_there;
}

/* Whether `m`, all that is off, lies in the same places, which hold some that is less so. */
static bool is_said_of(usc_cause *c, const marks *m, const char *where)
{
    usc_line l = {0};
    const bool same = !usc_cause_noisy(c, m) && say_where(c, m, false, &l) &&
                      l.text != NULL && strcmp(l.text, where) == 0;
    usc_line_free(&l);
    return same;
}

/* Those of some elements that are not off by a trifle beside most of them: an honest
 * number near zero is no place. */
static marks without_trifles(usc_cause *c, const marks *m)
{
    marks kept = {.at = usc_cause_room(c, c->d.n, 1)};
    double amount, share;
    if (kept.at == NULL) return kept;
    middle_errors(c, m, true, &amount, &share);
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        kept.at[i] = m->at[i] && !(fabs(d - t) < TRIFLE * amount && isfinite(amount));
        kept.n += kept.at[i];
    }
    return kept;
}

bool usc_cause_where(usc_cause *c, usc_cause_found *out)
{
    const marks *fine = usc_cause_fine(c), *far = usc_cause_far(c);
    if (fine == NULL || far == NULL) return false;
    const marks most = c->floats ? gross(c) : (marks){0};
    const marks *const first = far->n > 0 ? far : fine;
    const marks apart = c->floats ? without_trifles(c, first) : (marks){0};
    const bool strays = apart.at != NULL && apart.n < first->n;
    const marks *const sets[] = {strays ? &apart : first, first,
                                 most.at != NULL ? &most : far, fine};
    usc_line best = {0};
    clue say = {.code = USC_CAUSE_WHERE};
    for (int i = strays ? 0 : 1; i < 4;
         i++) { /* the first that is told by numbers of slices */
        usc_line l = {0};
        const bool rest = sets[i]->n < fine->n || usc_cause_noisy(c, sets[i]);
        if (rest && !is_apart(c, sets[i]))
            continue; /* all are off, these a little more */
        const bool told = say_where(c, sets[i], rest, &l);
        if (l.text != NULL && l.text[0] != '\0' && (told || best.text == NULL)) {
            usc_line_free(&best);
            best = l;
            say.code = rest && !(told && is_said_of(c, fine, l.text))
                           ? USC_CAUSE_WHERE_FAR
                           : USC_CAUSE_WHERE;
        } else {
            usc_line_free(&l);
        }
        if (told) break;
    }
    say.s = best.text;
    const bool found = !best.failed && best.text != NULL && usc_cause_say(out, &say);
    usc_line_free(&best);
    return found;
}
