// SPDX-License-Identifier: Apache-2.0
// A check that several processes share: which calls are this one's, and rows that others
// wrote. A share is a range of picks, the same ranges in every process; who works on
// which is asked of the ranks (ulpscope/x/run.h), who keep that where all can see it.
// With a budget shares are ranges of the picks in the order of an agenda that hears
// nothing, and small, so that the most telling come first whoever takes them.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "result/result_parts.h"
#include "run/check.h"

enum { SHARES_A_RANK = 32, MOST_PICKS = 64, MOST_PICKS_TIMED = 4 };
#define PAUSE 0.2 /* seconds until what was all given away is asked for again, */
#define CROWD 64  /* and that once more for each so many ranks: they ask one server */

typedef struct shares {
    usc_check *check;
    const usc_run_ranks *ranks;
    usc_keys *known;        /* calls that have a row */
    int64_t size, n;        /* picks of a share; how many shares */
    int64_t at, end;        /* what is left of the share in hand */
    int64_t *left;          /* by share: picks whose rows are not all there */
    double asked;           /* when there was none to be had */
    double finish;          /* on usc_run_clock; 0: never */
    int64_t *order, *place; /* with a budget: picks, and where each stands among them */
    bool over, lost;
} shares;

/* ---- shares ---- */

static usc_hash128 key_of(int64_t call)
{
    return (usc_hash128){.low = (uint64_t)call};
}

static int64_t pick_at(const shares *s, int64_t at)
{
    return s->order != NULL ? s->order[at] : at;
}

/* Of what stands at a place among all. */
static void count_down(shares *s, int64_t at)
{
    const int64_t share = at / s->size;
    if (--s->left[share] == 0) s->ranks->done(s->ranks->ctx, share);
}

static bool is_spent(const shares *s)
{
    return s->finish > 0 && usc_run_clock() >= s->finish;
}

/* Takes the next share; whether there was one. When the budget is spent none is wanted,
 * and rank 0 waits for what the others found. */
static bool claim(shares *s)
{
    const double now = usc_run_clock();
    const int64_t wanted = is_spent(s) ? 0 : s->n;
    if (s->over || s->lost || now - s->asked < PAUSE * (1 + s->ranks->n / CROWD))
        return false;
    const int64_t share = s->ranks->claim(s->ranks->ctx, wanted);
    s->asked = share == USC_SHARE_LATER ? now : 0;
    s->over = share == USC_SHARE_OVER;
    s->lost = share == USC_SHARE_LOST || share >= s->n;
    if (share < 0 || share >= wanted) return false;
    s->at = share * s->size;
    s->end = s->at + s->size;
    if (s->end > s->check->picks.n) s->end = s->check->picks.n;
    s->left[share] = s->end - s->at;
    return true;
}

static bool more(void *ctx)
{
    shares *s = ctx;
    do
        for (; s->at < s->end && !is_spent(s); s->at++) {
            const int64_t call = s->check->picks.pick[pick_at(s, s->at)].call;
            if (usc_keys_find(s->known, key_of(call)) == NULL) return true;
            count_down(s, s->at);
        }
    while (claim(s));
    return false;
}

static int64_t take(void *ctx)
{
    shares *s = ctx;
    return pick_at(s, s->at++);
}

static bool waits(void *ctx)
{
    const shares *s = ctx;
    return !s->over && !s->lost;
}

static int64_t room(void *ctx, int64_t job)
{
    return usc_check_room(((shares *)ctx)->check, job);
}

static void ask(void *ctx, int64_t job, usc_line *to)
{
    usc_check_ask(((shares *)ctx)->check, job, to);
}

static usc_status ready(void *ctx, const usc_json *message, usc_error *err)
{
    return usc_check_begin(((shares *)ctx)->check, message, err);
}

/* A row stands for good once its cause is there as well. */
static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    shares *s = ctx;
    const usc_status st = usc_check_hear(s->check, news, err);
    if (st == USC_OK && !news->searching)
        count_down(s, s->place != NULL ? s->place[news->job] : news->job);
    return st;
}

static usc_status know_rows(usc_result *r, usc_keys *known, usc_error *err)
{
    const int64_t *done;
    int64_t n;
    usc_status st = usc_result_done(r, &done, &n, err);
    for (int64_t i = 0; i < n; i++)
        (void)usc_keys_put(known, key_of(done[i]), i);
    return st == USC_OK && known->failed ? usc_no_memory("check", err) : st;
}

static usc_status work_on(shares *s, bool *stopped, usc_error *err)
{
    usc_check *c = s->check;
    const usc_crew_work work = {.ctx = s,
                                .more = more,
                                .take = take,
                                .waits = waits,
                                .room = room,
                                .request = ask,
                                .ready = ready,
                                .hear = hear};
    int jobs = c->options->jobs > 0 ? c->options->jobs : c->options->cores;
    c->agenda.calls = c->calls;
    c->agenda.pick = c->picks.pick;
    usc_status st = usc_agenda_begin(&c->agenda, NULL, 0, 0, err);
    if (st == USC_OK) st = usc_check_work(c, &work, jobs, true, stopped, err);
    usc_agenda_free(&c->agenda);
    c->agenda = (usc_agenda){.arena = {.alloc = usc_libc_alloc}};
    if (st == USC_OK && s->lost && !*stopped)
        usc_check_say(c, "rank 0 is gone, or the ranks cannot reach each other");
    *stopped |= s->lost;
    return st;
}

/* The order of an agenda that hears of no verdict: the same in all ranks, also in those
 * that go on with a run. */
static usc_status put_in_order(shares *s, usc_error *err)
{
    usc_check *c = s->check;
    usc_agenda a = {.calls = c->calls, .pick = c->picks.pick};
    const int64_t n = c->picks.n;
    s->order = malloc((size_t)(n + 1) * sizeof *s->order);
    s->place = calloc((size_t)n + 1, sizeof *s->place);
    if (s->order == NULL || s->place == NULL) return usc_no_memory("check", err);
    for (int64_t i = 0; i < n; i++)
        s->place[i] = i;
    const usc_status st = usc_agenda_begin(&a, s->place, n, s->finish, err);
    for (int64_t i = 0; st == USC_OK && i < n; i++) {
        s->order[i] = usc_agenda_take(&a);
        s->place[s->order[i]] = i;
    }
    usc_agenda_free(&a);
    return st;
}

static usc_status cut(shares *s, usc_error *err)
{
    const usc_check *c = s->check;
    const double budget = c->options->budget;
    const int64_t most = budget > 0 ? MOST_PICKS_TIMED : MOST_PICKS;
    s->finish = budget > 0 ? c->start + budget : 0;
    s->size = c->picks.n / ((int64_t)s->ranks->n * SHARES_A_RANK);
    s->size = s->size < 1 ? 1 : s->size > most ? most : s->size;
    s->n = (c->picks.n + s->size - 1) / s->size;
    s->left = calloc((size_t)s->n, sizeof *s->left);
    if (s->left == NULL) return usc_no_memory("check", err);
    return budget > 0 ? put_in_order(s, err) : USC_OK;
}

usc_status usc_check_share(usc_check *c, usc_keys *known, bool *stopped, usc_error *err)
{
    usc_keys own = {0};
    shares s = {
        .check = c, .ranks = c->hooks->ranks, .known = known != NULL ? known : &own};
    usc_status st = cut(&s, err);
    if (st == USC_OK && known == NULL) st = know_rows(c->result, &own, err);
    if (known == NULL) {
        c->goes_on = own.n > 0;
        c->n_done = (int64_t)own.n;
    }
    if (st == USC_OK) st = work_on(&s, stopped, err);
    usc_keys_free(&own);
    free(s.left);
    free(s.order);
    free(s.place);
    return st;
}

usc_status usc_check_meet(usc_check *c, usc_keys *known, bool *idle, usc_error *err)
{
    const usc_run_ranks *ranks = c->hooks->ranks;
    const int answer = ranks->meet(ranks->ctx);
    usc_result *out = NULL;
    *idle = answer == USC_SHARE_OVER;
    if (*idle) return USC_OK;
    if (answer == USC_SHARE_LOST)
        return usc_error_set(err, USC_E_IO, -1,
                             "rank 0 went before it had begun; what it said tells why");
    usc_status st = usc_result_open(c->options->out, &out, err);
    if (st != USC_OK)
        return usc_error_set(
            err, USC_E_NOT_FOUND, -1,
            "rank 0 has begun, and %s is not to be seen here: ranks need "
            "an OUT on a disk that they share",
            c->options->out);
    const char *inputs = usc_result_get(out, "inputs");
    if (inputs == NULL) inputs = "{}";
    c->others = usc_arena_text(&c->texts, inputs);
    st = c->others != NULL ? know_rows(out, known, err) : usc_no_memory("check", err);
    usc_result_close(out);
    return st;
}

/* ---- parts ---- */

/* Numbers of the parts in OUT, ascending; how many, -1 without memory. */
static int list_parts(const char *out, int **numbers)
{
    DIR *list = opendir(out);
    struct dirent *entry;
    int n = 0;
    *numbers = NULL;
    while (list != NULL && n >= 0 && (entry = readdir(list)) != NULL) {
        char *end = NULL;
        if (strncmp(entry->d_name, "part-", 5) != 0) continue;
        const long number = strtol(entry->d_name + 5, &end, 10);
        if (end == entry->d_name + 5 || *end != '\0' || number < 1 || number > 1 << 20)
            continue;
        int *grown = realloc(*numbers, (size_t)(n + 1) * sizeof *grown);
        if (grown != NULL) *numbers = grown;
        if (grown != NULL) grown[n] = (int)number;
        n = grown != NULL ? n + 1 : -1;
    }
    if (list != NULL) (void)closedir(list);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && (*numbers)[j - 1] > (*numbers)[j]; j--) {
            const int swapped = (*numbers)[j];
            (*numbers)[j] = (*numbers)[j - 1];
            (*numbers)[j - 1] = swapped;
        }
    return n;
}

bool usc_check_has_parts(const char *out)
{
    int *numbers;
    const int n = list_parts(out, &numbers);
    free(numbers);
    return n != 0;
}

/* One that cannot be taken in is left where it is; its calls are judged again. */
static usc_status gather_one(usc_check *c, int number, bool drop, usc_line *told,
                             usc_error *err)
{
    char name[32], folder[USC_PATH_SIZE];
    int64_t n = 0;
    (void)snprintf(name, sizeof name, "part-%d", number);
    usc_status st = usc_path_join(folder, c->options->out, name, err);
    if (st == USC_OK && !drop) st = usc_result_adopt(c->result, folder, &n, err);
    if (st == USC_E_NOMEM) return st;
    if (st == USC_OK || st == USC_E_NOT_FOUND) {
        usc_result_remove(folder);
        if (n > 0) usc_line_add(told, "%s", told->n > 0 ? ", " : "");
        if (n > 0) usc_line_count(told, n);
        if (n > 0) usc_line_add(told, " of rank %d", number);
        return USC_OK;
    }
    usc_check_say(c, "%s is left where it is, and its calls are judged again: %s", folder,
                  err->text);
    return USC_OK;
}

usc_status usc_check_gather(usc_check *c, bool drop, usc_error *err)
{
    usc_line told = {0};
    int *numbers;
    usc_error own;
    const int n = list_parts(c->options->out, &numbers);
    usc_status st = n < 0 ? usc_no_memory("check", err) : USC_OK;
    for (int i = 0; i < n && st == USC_OK; i++)
        st = gather_one(c, numbers[i], drop, &told, err != NULL ? err : &own);
    if (told.n > 0 && !told.failed) usc_check_say(c, "taken in: %s", told.text);
    usc_line_free(&told);
    free(numbers);
    return st;
}
