// SPDX-License-Identifier: Apache-2.0
// Mode asd: what becomes of an anomaly. The first one in `cooldown` minutes counts and is
// an event; `strikes_num` of them within `strikes_window` are a warning, after which the
// matmuls of all ranks are checked for `cooldown` minutes, once in `checksum_cooldown`.
#include "watch/asd.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/line.h"

enum { MOST_KEPT = 4096, MINUTE = 60, ROUND = 10 /* seconds between looks at flags */ };

/* Of one rank. Of the anomalies within strikes_window those that count, and of others in
 * a row the last: that is all that the rule ever reads. */
typedef struct strikes {
    int64_t n;
    bool flag;     /* asks for the checksum */
    bool abnormal; /* a matmul was, since the checksum is on */
    /* of rank 0, for all: */
    bool on, was_on, had_round;
    double since, round;    /* seconds: when it went on, when flags were looked at */
    usc_asd_anomaly kept[]; /* oldest first */
} strikes;

static int64_t most_kept(const usc_watch_config *c)
{
    /* those that count lie `cooldown` apart; one that does not between each two */
    const int64_t in_window = c->strikes_window / c->cooldown + 3;
    return 2 * in_window < MOST_KEPT ? 2 * in_window : MOST_KEPT;
}

size_t usc_asd_rank_size(const usc_watch_config *config)
{
    return sizeof(strikes) + (size_t)most_kept(config) * sizeof(usc_asd_anomaly);
}

/* Bools are read as bytes: others than 0 and 1 are no values of theirs. */
static bool is_flag(const void *flag)
{
    return *(const unsigned char *)flag <= 1;
}

bool usc_asd_rank_sound(const usc_watch_config *config, const void *rank)
{
    const strikes *s = rank;
    if (s->n < 0 || s->n > most_kept(config) || !is_flag(&s->flag) ||
        !is_flag(&s->abnormal) || !is_flag(&s->on) || !is_flag(&s->was_on) ||
        !is_flag(&s->had_round))
        return false;
    for (int64_t i = 0; i < s->n; i++)
        if (!is_flag(&s->kept[i].counted) || !is_flag(&s->kept[i].struck) ||
            memchr(s->kept[i].name, '\0', sizeof s->kept[i].name) == NULL)
            return false;
    return true;
}

/* ---- texts ---- */

/* Seconds since 1970 as a date; those of another clock as they are. */
static void put_time(usc_line *l, double seconds)
{
    char text[32];
    struct tm parts;
    const bool is_date = usc_watch_is_date(seconds);
    const time_t whole = is_date ? (time_t)seconds : 0;
    if (is_date && localtime_r(&whole, &parts) != NULL &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) > 0)
        usc_line_text(l, text);
    else
        usc_line_add(l, "%.1f s", seconds);
}

static void put_anomaly(usc_line *l, const usc_asd_anomaly *a)
{
    usc_line_add(
        l,
        "param name %s, abnormal value %g, previous value %g, history avg %g, bp "
        "time %lld, normal count %lld.",
        a->name, a->value, a->previous, a->average, (long long)a->calls,
        (long long)a->normal);
}

static void say(usc_watch_view *v, usc_watch_kind kind, int32_t rank,
                const usc_asd_anomaly *a, usc_line *l)
{
    const double limit = (double)v->w->config.upper_thresh1;
    const double unbiased =
        a != NULL && a->normal > 0 ? a->average / (1 - pow(0.99, (double)a->normal)) : 0;
    const usc_watch_finding f = {
        .kind = kind,
        .tensor = a != NULL ? a->tensor : -1,
        .rank = rank,
        .score = a != NULL && unbiased > 0 && isfinite(a->value) ? a->value / unbiased
                                                                 : HUGE_VAL,
        .threshold = limit,
        .action = kind == USC_WATCH_ASD_EVENT ? "" : USC_WATCH_CHECK};
    if (l->failed)
        v->status = usc_no_memory("watch", v->err);
    else
        usc_watch_say(v, &f, "%s", l->text);
    usc_line_free(l);
}

static void say_event(usc_watch_view *v, int32_t rank, const usc_asd_anomaly *a)
{
    usc_line l = {0};
    usc_line_text(&l, "[Event][");
    put_time(&l, a->seconds);
    usc_line_add(&l, "] [Rank %ld]: A grad-norm spike may happen, ", (long)rank);
    put_anomaly(&l, a);
    say(v, USC_WATCH_ASD_EVENT, rank, a, &l);
}

static void put_strike(usc_line *l, int index, const usc_asd_anomaly *a)
{
    usc_line_add(l, "\nGrad-norm spike: index %d, time ", index);
    put_time(l, a->seconds);
    usc_line_text(l, ", ");
    put_anomaly(l, a);
}

/* `struck`: places in s->kept, newest first. */
static void say_warning(usc_watch_view *v, int32_t rank, const strikes *s,
                        const int64_t *struck, int64_t n, const usc_asd_anomaly *a)
{
    enum { MOST_LINES = 8 }; /* an event's text has an end: the newest */
    int index = 0;
    usc_line l = {0};
    usc_line_text(&l, "[Warning][");
    put_time(&l, a->seconds);
    usc_line_add(&l, "] [Rank %ld]: feature detection detects abnormal results!",
                 (long)rank);
    for (int64_t i = n < MOST_LINES ? n : MOST_LINES; i-- > 0;)
        put_strike(&l, index++, &s->kept[struck[i]]);
    put_strike(&l, index, a);
    say(v, USC_WATCH_ASD_WARNING, rank, a, &l);
}

/* ---- strikes ---- */

/* Those that make `strikes_num` together with a new one, newest first, as the published
 * loop finds them: the newest that counts, struck or not, then older ones not struck. How
 * many; *oldest: the last that the loop looked at. */
static int64_t gather(const strikes *s, int64_t newest, int64_t wanted, int64_t *found,
                      int64_t *oldest)
{
    int64_t n = 0;
    found[n++] = *oldest = newest;
    for (int64_t i = newest - 1; i >= 0; i--) {
        *oldest = i;
        if (s->kept[i].counted && !s->kept[i].struck) found[n++] = i;
        if (n == wanted) break;
    }
    return n;
}

static void strike(usc_watch_view *v, int32_t rank, strikes *s, int64_t newest,
                   usc_asd_anomaly *a)
{
    const usc_watch_config *c = &v->w->config;
    const int64_t wanted = c->strikes_num - 1;
    int64_t found[MOST_KEPT], oldest = 0, n = 0;
    if (wanted > 0 && newest < 0) return;
    if (wanted > 0) {
        n = gather(s, newest, wanted, found, &oldest);
        const double ago = a->seconds - s->kept[oldest].seconds;
        if (n != wanted || ago > (double)(c->strikes_window * MINUTE)) return;
    }
    say_warning(v, rank, s, found, n, a);
    for (int64_t i = 0; i < n; i++)
        s->kept[found[i]].struck = true;
    a->struck = true;
    if (c->with_checksum) s->flag = true;
}

static void drop_first(strikes *s, int64_t n)
{
    memmove(s->kept, s->kept + n, (size_t)(s->n - n) * sizeof s->kept[0]);
    s->n -= n;
}

static void keep(usc_watch_view *v, strikes *s, const usc_asd_anomaly *a)
{
    const usc_watch_config *c = &v->w->config;
    int64_t expired = 0;
    if (!a->counted && s->n > 0 && !s->kept[s->n - 1].counted) s->n--;
    if (s->n == most_kept(c)) drop_first(s, 1);
    s->kept[s->n++] = *a;
    while (a->seconds - s->kept[expired].seconds > (double)(c->strikes_window * MINUTE))
        expired++;
    drop_first(s, expired);
}

void usc_asd_count(usc_watch_view *v, int32_t rank, const usc_asd_anomaly *found)
{
    strikes *s = usc_watch_rank(v, rank);
    if (s == NULL) return;
    usc_asd_anomaly a = *found;
    int64_t newest = s->n - 1;
    while (newest >= 0 && !s->kept[newest].counted)
        newest--;
    const double cooldown = (double)(v->w->config.cooldown * MINUTE);
    if (newest >= 0 && a.seconds - s->kept[newest].seconds < cooldown)
        a.counted = false;
    else if (newest >= 0 || s->n == 0) {
        say_event(v, rank, &a);
        strike(v, rank, s, newest, &a);
    }
    keep(v, s, &a);
}

/* ---- the checksum of matmuls ---- */

static bool has_bf16(const usc_watch *w)
{
    for (int64_t i = 0; i < w->n_tensors; i++)
        if (w->tensors[i].dtype == USC_BF16) return true;
    return false;
}

static void say_of_rank(usc_watch_view *v, usc_watch_kind kind, int32_t rank)
{
    usc_line l = {0};
    if (kind == USC_WATCH_CHECKSUM_ABNORMAL)
        usc_line_add(&l,
                     "[Warning][Rank %ld]: The result of Matmul checksum is abnormal!",
                     (long)rank);
    else if (kind == USC_WATCH_CHECKSUM_ON)
        usc_line_add(&l,
                     "[Info] Rank %ld: feature detection detects abnormal results, "
                     "checksum is on.",
                     (long)rank);
    else
        usc_line_add(&l, "[Info] Rank %ld: checksum is off", (long)rank);
    say(v, kind, rank, NULL, &l);
}

/* Looks at all flags, and takes them back. */
static bool take_flags(usc_watch_view *v)
{
    bool any = false;
    for (int32_t r = 0; r < v->w->config.world; r++) {
        strikes *s = usc_watch_rank(v, r);
        if (s == NULL) return false;
        any = any || s->flag;
        s->flag = false;
    }
    return any;
}

static void switch_on(usc_watch_view *v, strikes *all)
{
    all->on = all->was_on = v->w->wants_checksum = true;
    all->since = v->seconds;
    for (int32_t r = 0; r < v->w->config.world; r++) {
        strikes *s = usc_watch_rank(v, r);
        if (s == NULL) return;
        s->abnormal = false;
        say_of_rank(v, USC_WATCH_CHECKSUM_ON, r);
    }
}

static void switch_off(usc_watch_view *v, strikes *all)
{
    all->on = v->w->wants_checksum = false;
    all->round = v->seconds;
    for (int32_t r = 0; r < v->w->config.world; r++) {
        const strikes *s = usc_watch_rank(v, r);
        if (s == NULL) return;
        if (s->abnormal) say_of_rank(v, USC_WATCH_CHECKSUM_ABNORMAL, r);
        say_of_rank(v, USC_WATCH_CHECKSUM_OFF, r);
    }
    (void)take_flags(v); /* what was asked for meanwhile is had */
}

static void take_matmuls(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_MATMUL, &rows);
    for (size_t i = 0; i < n; i++) {
        strikes *s = rows[i].value != 0 ? usc_watch_rank(v, rows[i].rank) : NULL;
        if (s != NULL) s->abnormal = true;
    }
}

void usc_asd_checksum(usc_watch_view *v)
{
    const usc_watch_config *c = &v->w->config;
    if (!c->with_checksum || !has_bf16(v->w)) return;
    strikes *all = usc_watch_rank(v, 0);
    if (all == NULL) return;
    v->w->wants_checksum = all->on;
    if (all->on) {
        take_matmuls(v);
        if (v->seconds - all->since >= (double)(c->cooldown * MINUTE)) switch_off(v, all);
        return;
    }
    if (all->had_round && v->seconds - all->round < ROUND) return;
    all->had_round = true;
    all->round = v->seconds;
    const double pause = (double)(c->checksum_cooldown * MINUTE);
    if (take_flags(v) && (!all->was_on || v->seconds - all->since > pause))
        switch_on(v, all);
}
