// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/watch.h: the framework gives the same events whatever the order of rows and
// over a restart; states, rows and configurations that are not as they must be; what is
// bounded.
#include "watch_planted.h"

#include "watch_scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ulpscope/x/watch_products.h>

#include "watch_run.h"

/* ---- the framework ---- */

static void all_of_it(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step % 70 == 60) scale(&rows[(size_t)step % n], 1e4);
    if (step == 130) rows[1].n_nonfinite = 3;
    if (step > 200) zeros(r, AT, rows, n);
}

static void backwards(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    all_of_it(r, step, rows, n);
    for (size_t i = 0; i < n / 2; i++) {
        const usc_watch_row other = rows[i];
        rows[i] = rows[n - 1 - i];
        rows[n - 1 - i] = other;
    }
}

/* Feeds the first half by itself, and a row in two halves. */
static void in_pieces(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_error err;
    all_of_it(r, step, rows, n);
    usc_watch_row half = rows[n / 2];
    half.sum_abs /= 2;
    half.sum_sq /= 2;
    half.numel /= 2;
    half.n_zero /= 2;
    half.n_nonfinite = 0;
    half.hash64 = 0;
    assert_int_equal(usc_watch_feed(r->watch, &half, 1, &err), USC_OK);
    rows[n / 2].sum_abs /= 2;
    rows[n / 2].sum_sq /= 2;
    rows[n / 2].numel /= 2;
    rows[n / 2].n_zero /= 2;
}

static void restart(run *r, int world)
{
    void *bytes;
    size_t size;
    usc_error err;
    usc_watch_config c;
    assert_int_equal(usc_watch_save(r->watch, &bytes, &size, &err), USC_OK);
    usc_watch_free(r->watch);
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    c.world = world;
    assert_int_equal(usc_watch_create(&c, &r->watch, &err), USC_OK);
    for (int t = RUN_TENSORS; t-- > 0;) { /* in another order, with one more */
        char name[64];
        (void)snprintf(name, sizeof name, "layers.%d.weight", t);
        const usc_watch_tensor_info info = {name, USC_BF16, 2, false},
                                    more = {"new", USC_BF16, 2, false};
        int64_t unused;
        if (t == 3)
            assert_int_equal(usc_watch_tensor(r->watch, &more, &unused, &err), USC_OK);
        assert_int_equal(usc_watch_tensor(r->watch, &info, &r->ids[t], &err), USC_OK);
    }
    assert_int_equal(usc_watch_load(r->watch, bytes, size, &err), USC_OK);
    usc_watch_saved_free(bytes);
    r->world = world;
}

static void test_order_pieces_and_restarts_change_nothing(void **state)
{
    (void)state;
    static run plain, other;
    run_begin(&plain, "", 3);
    run_steps(&plain, USC_WATCH_GRAD, 0, STEPS, all_of_it);
    assert_true(plain.n_events > 5);
    run_begin(&other, "", 3);
    run_steps(&other, USC_WATCH_GRAD, 0, STEPS, backwards);
    assert_string_equal(plain.all, other.all);
    run_end(&other);
    run_begin(&other, "", 3);
    run_steps(&other, USC_WATCH_GRAD, 0, STEPS, in_pieces);
    assert_string_equal(plain.all, other.all);
    run_end(&other);
    run_end(&plain);
}

static void test_a_restart_goes_on(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "", 3);
    run_steps(&r, USC_WATCH_GRAD, 0, AT - 50, NULL);
    restart(&r, 3);
    run_steps(&r, USC_WATCH_GRAD, AT - 50, AT, NULL);
    restart(&r, 2); /* a smaller world */
    run_steps(&r, USC_WATCH_GRAD, AT, AT + 1, flip);
    assert_int_equal(r.n_events, 1);
    assert_int_equal(r.first.kind, USC_WATCH_OUTLIER);
    assert_string_equal(r.name, "layers.3.weight");
    restart(&r, 4);
    run_steps(&r, USC_WATCH_GRAD, AT + 1, STEPS, NULL);
    assert_int_equal(r.n_events, 1);
    run_end(&r);
}

static void test_a_bad_state_is_refused(void **state)
{
    (void)state;
    void *bytes;
    size_t size;
    usc_error err;
    run r;
    run_begin(&r, "", 1);
    run_steps(&r, USC_WATCH_GRAD, 0, 20, NULL);
    assert_int_equal(usc_watch_save(r.watch, &bytes, &size, &err), USC_OK);
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(usc_watch_load(r.watch, copy, size - 1, &err), USC_E_CORRUPT);
    assert_int_equal(usc_watch_load(r.watch, copy, 3, &err), USC_E_CORRUPT);
    copy[size / 2] = (char)(copy[size / 2] ^ 1);
    assert_int_equal(usc_watch_load(r.watch, copy, size, &err), USC_E_CORRUPT);
    copy[12]++; /* the version */
    assert_int_equal(usc_watch_load(r.watch, copy, size, &err), USC_E_VERSION);
    free(copy);
    usc_watch_saved_free(bytes);
    run_end(&r);
}

static void test_bad_rows_are_refused(void **state)
{
    static const usc_watch_row bad[] = {{.rank = 2},
                                        {.rank = -1},
                                        {.tensor = RUN_TENSORS},
                                        {.tensor = -2},
                                        {.site = USC_N_WATCH_SITES},
                                        {.step = -1},
                                        {.numel = INT64_MAX}};
    (void)state;
    usc_error err;
    run r;
    run_begin(&r, "", 2);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const usc_watch_row two[] = {{.tensor = 0}, bad[i]};
        assert_int_equal(usc_watch_feed(r.watch, two, 2, &err), USC_E_RANGE);
        assert_int_equal(err.where, 1);
    }
    run_end(&r);
}

/* A clock that jumps back, stands still or is NaN harms nothing. */
static void test_clocks_jump(void **state)
{
    static const double clock[] = {1e9,   5,      5,        -1e9, (double)NAN,
                                   1e308, -1e308, HUGE_VAL, 0};
    (void)state;
    usc_error err;
    run r;
    run_begin(&r, "mode:asd,enable:true,with_checksum:true", 1);
    for (int64_t step = 0; step < 9; step++)
        assert_int_equal(usc_watch_step(r.watch, step, clock[step], &err), USC_OK);
    run_end(&r);
}

static void test_many_tensors_and_events_are_bounded(void **state)
{
    enum { MANY = 100000 };
    (void)state;
    usc_error err;
    usc_watch *w;
    usc_watch_config c;
    int64_t id, n = 0;
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    assert_int_equal(usc_watch_create(&c, &w, &err), USC_OK);
    usc_watch_row *rows = calloc(MANY, sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "p%d", i);
        const usc_watch_tensor_info info = {.name = name, .dtype = USC_F32};
        assert_int_equal(usc_watch_tensor(w, &info, &id, &err), USC_OK);
        assert_int_equal(id, i);
        rows[i] = (usc_watch_row){.tensor = i, .max_abs = 1, .sum_abs = 2, .numel = 4};
    }
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < MANY; i++) {
            rows[i].step = step;
            rows[i].n_nonfinite = step == 9;
        }
        assert_int_equal(usc_watch_feed(w, rows, MANY, &err), USC_OK);
        assert_int_equal(usc_watch_step(w, step, step, &err), USC_OK);
    }
    usc_watch_event e = {0};
    bool more = false;
    while (usc_watch_next(w, &e)) {
        n++;
        more = more || strstr(e.sentence, "and 99992 more like it") != NULL;
    }
    assert_int_equal(n, 8); /* not 10^5 */
    assert_true(more);
    /* temporal and dead read gradients: two series of each, one of them small */
    assert_true(usc_watch_bytes(w) < (int64_t)MANY * 2 * USC_WATCH_SERIES_BYTES);
    usc_watch_free(w);
    free(rows);
}

/* ---- configuration ---- */

static void test_configurations(void **state)
{
    static const struct {
        const char *text, *says; /* what its error has, NULL: it is right */
        int64_t
            stands; /* cooldown where that is a remark alone, for the default stands */
    } rows[] = {
        {"", NULL, 0},
        {"enable:true,with_checksum:true,cooldown:5,strikes_num:3,strikes_window:480,"
         "checksum_cooldown:180,upper_thresh1:1000000,upper_thresh2:100,"
         "grad_sample_interval:3",
         NULL, 0},
        {"mode:asd,enable:true", NULL, 0},
        {"mode:sound,detectors:temporal+ranks,world:8,loss_scaling:true", NULL, 0},
        {"cooldowns:5", "did you mean 'cooldown'", 0},
        {"upper_tresh1:5", "did you mean 'upper_thresh1'", 0},
        {" cooldown:5", "Blanks count", 0},
        {"cooldown: 5", "from 1 to", 5},
        {"cooldown:00", "from 1 to", 5},
        {"cooldown:0", "from 1 to", 5},
        {"cooldown:-1", "from 1 to", 5},
        {"cooldown:5m", "from 1 to", 5},
        {"cooldown:\xc2\xb2", "from 1 to", 5}, /* a superscript two */
        {"cooldown:99999999999999999999", "from 1 to", 5},
        {"strikes_num:0,cooldown:x", "; cooldown:x: a whole number", 5},
        {"mode:sound,cooldown:0", "from 1 to", 0},
        {"upper_thresh1:2", "from 3 to", 5},
        {"enable:True", "true or false", 0},
        {"enable", "key:value", 0},
        {"enable:true:true", "key:value", 0},
        {"enable:true,", "last comma", 0},
        {",", "key:value", 0},
        {"mode:fast", "sound or asd", 0},
        {"enable:true,mode:asd", "name it first", 0},
        {"detectors:temporel", "did you mean 'temporal'", 0},
        {"detectors:", "names of detectors", 0},
        {"detectors:temporal++ranks", "names of detectors", 0},
        {"world:0", "from 1 to", 0},
        {"weights_every:1,matmul_every:100,audit:50,keep_calls:1000,action:stop,"
         "exit_code:17",
         NULL, 0},
        {"weight_every:1", "did you mean 'weights_every'", 0},
        {"weights_every:0", "from 1 to", 0},
        {"audit:-1", "from 0 to", 0},
        {"exit_code:0", "from 1 to 255", 0},
        {"exit_code:256", "from 1 to 255", 0},
        {"stop_after:-1", "from 0 to", 0},
        {"action:halt", "log, skip, raise and stop", 0},
        {"action:stopp", "did you mean 'stop'", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_watch_config c, before;
        usc_error err = {0};
        usc_watch_config_init(&c, USC_WATCH_ASD);
        before = c;
        const usc_status st = usc_watch_config_parse(&c, rows[i].text, &err);
        const bool stands = rows[i].stands != 0;
        const char *said = stands ? c.remark : err.text;
        if (rows[i].says == NULL ? st != USC_OK || c.remark[0] != '\0'
                                 : strstr(said, rows[i].says) == NULL)
            fail_msg("'%s': %s", rows[i].text, said);
        assert_int_equal(st == USC_OK, rows[i].says == NULL || stands);
        if (stands) assert_int_equal(c.cooldown, rows[i].stands);
        if (st != USC_OK) assert_memory_equal(&c, &before, sizeof c);
    }
}

static void test_defaults_are_the_documents(void **state)
{
    (void)state;
    usc_watch_config c;
    usc_watch_config_init(&c, USC_WATCH_ASD);
    assert_false(c.enable);
    assert_false(c.with_checksum);
    assert_int_equal(c.cooldown, 5);
    assert_int_equal(c.strikes_num, 3);
    assert_int_equal(c.strikes_window, 480);
    assert_int_equal(c.checksum_cooldown, 180);
    assert_int_equal(c.upper_thresh1, 1000000);
    assert_int_equal(c.upper_thresh2, 100);
    assert_int_equal(c.grad_sample_interval, 3);
    assert_int_equal(c.weights_every, 20);
    assert_int_equal(c.action, USC_WATCH_DO_LOG);
    assert_string_equal(usc_watch_reaction_text(USC_N_WATCH_REACTIONS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_pieces_and_restarts_change_nothing),
        cmocka_unit_test(test_a_restart_goes_on),
        cmocka_unit_test(test_a_bad_state_is_refused),
        cmocka_unit_test(test_bad_rows_are_refused),
        cmocka_unit_test(test_clocks_jump),
        cmocka_unit_test(test_many_tensors_and_events_are_bounded),
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_defaults_are_the_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
