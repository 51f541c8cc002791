// SPDX-License-Identifier: Apache-2.0
// Mode asd of ulpscope/x/watch.h, held row by row to the verdicts of the published
// algorithm (docs/reference/watch-reference.md, "Mode asd"), with what is odd about it.
// Each verdict here was worked out by hand from the rule: v is the square of the
// amplitude, and behind rows of 1 the average over its bias is 1, so that the first
// threshold is 1e6 and the second 100.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ulpscope/x/watch.h>

static usc_watch *make(const char *text, int32_t world, const char *const *names,
                       usc_dtype dtype)
{
    usc_error err;
    usc_watch *w;
    usc_watch_config c;
    int64_t id;
    usc_watch_config_init(&c, USC_WATCH_ASD);
    c.enable = true;
    c.world = world;
    if (usc_watch_config_parse(&c, text, &err) != USC_OK) fail_msg("%s", err.text);
    assert_int_equal(usc_watch_create(&c, &w, &err), USC_OK);
    for (; *names != NULL; names++) {
        const usc_watch_tensor_info info = {
            .name = *names, .dtype = dtype, .ndim = strstr(*names, "bias") ? 1 : 2};
        assert_int_equal(usc_watch_tensor(w, &info, &id, &err), USC_OK);
    }
    return w;
}

static usc_watch_row gradient(int64_t step, int32_t rank, int64_t tensor,
                              double amplitude)
{
    return (usc_watch_row){.step = step,
                           .rank = rank,
                           .site = USC_WATCH_GRAD,
                           .tensor = tensor,
                           .max_abs = isnan(amplitude) ? 1 : amplitude,
                           .sum_abs = 1,
                           .sum_sq = 1,
                           .numel = 10,
                           .n_nonfinite = isnan(amplitude)};
}

/* What was said since the last time: "E" an event, "W" a warning, "+", "-" and "!" of the
 * checksum, with the rank where there is more than one. */
static void said(usc_watch *w, bool with_rank, char *out, size_t size)
{
    static const char letters[USC_N_WATCH_KINDS] = {[USC_WATCH_ASD_EVENT] = 'E',
                                                    [USC_WATCH_ASD_WARNING] = 'W',
                                                    [USC_WATCH_CHECKSUM_ON] = '+',
                                                    [USC_WATCH_CHECKSUM_OFF] = '-',
                                                    [USC_WATCH_CHECKSUM_ABNORMAL] = '!'};
    usc_watch_event e;
    size_t n = strlen(out);
    while (usc_watch_next(w, &e)) {
        if (with_rank)
            n += (size_t)snprintf(out + n, size - n, "%c%d ", letters[e.kind],
                                  (int)e.rank);
        else
            n += (size_t)snprintf(out + n, size - n, "%c", letters[e.kind]);
    }
}

/* ---- the rule, row by row ---- */

/* "1*12 1000 nan": amplitudes, with how many times; what is said at those that say
 * something, as "row:letters". */
typedef struct stream {
    const char *name, *config;
    double seconds; /* between two rows */
    const char *amplitudes, *verdicts;
} stream;

static const stream streams[] = {
    {"a spike beyond 1000 times", "", 1, "1*12 1001 1", "12:E"},
    {"not one below", "", 1, "1*12 999 1", ""},
    {"NaN at once", "", 1, "nan", "0:E"},
    {"Inf, where the square has no room in float32", "", 1, "1*3 1e20", "3:E"},
    {"nothing within the first ten", "", 1, "1*9 1e9 1", ""},
    {"the eleventh", "", 1, "1*10 1e9 1", "10:E"},
    {"zeros do not count as normal", "", 1, "0*50 1*9 1e9", ""},
    {"thresholds of one's own", "upper_thresh1:3,upper_thresh2:3", 1, "1*12 3", "12:E"},
    /* what is odd about it */
    {"1: a lasting fault is one", "", 400, "1*12 1e9*20 1*3", "12:E"},
    {"2: a spike behind a NaN is missed", "", 400, "1*12 nan 1e6 1e6 1 1e6", "12:E 16:E"},
    {"3: twelve times as much freezes the average", "", 1, "1*50 12*500 1100", "550:E"},
    {"3: and nine times does not", "", 1, "1*50 9*500 1100", ""},
    {"4: a bad value among the first", "", 1, "1*5 1e6 1*404 1e4", ""},
    {"4: without it", "", 1, "1*410 1e4", "410:E"},
    {"5: nothing downwards", "", 1, "1*50 0*50 1e-12*50", ""},
    {"6: two strikes are one", "strikes_num:2", 400, "1*12 1e4 1 1e4 1 1e4 1 1e4 1",
     "12:E 14:EW 16:EW 18:EW"},
    /* cooldown and strikes */
    {"within the cooldown", "", 100, "1*12 1e4 1 1e4 1 1e4 1", "12:E 16:E"},
    {"three strikes, and anew", "", 400, "1*12 1e4 1 1e4 1 1e4 1 1e4 1 1e4 1 1e4",
     "12:E 14:E 16:EW 18:E 20:E 22:EW"},
    {"one strike", "strikes_num:1", 400, "1*12 1e4 1 1e4", "12:EW 14:EW"},
    {"too far apart", "strikes_window:10", 200, "1*12 1e4 1 1e4 1 1e4 1 1e4",
     "12:E 14:E 16:E 18:E"},
    {"just within", "strikes_window:14", 200, "1*12 1e4 1 1e4 1 1e4", "12:E 14:E 16:EW"},
    {"the last of a cooldown that is longer", "cooldown:20", 400,
     "1*12 1e4 1 1e4 1 1e4 1 1e4", "12:E 16:E"},
};

static bool next_amplitude(const char **at, double *value, long *times)
{
    char *end;
    while (**at == ' ')
        ++*at;
    if (**at == '\0') return false;
    *value = strtod(*at, &end);
    *times = *end == '*' ? strtol(end + 1, &end, 10) : 1;
    *at = end;
    return true;
}

static void test_streams(void **state)
{
    static const char *const names[] = {"fc.weight", NULL};
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        const stream *s = &streams[i];
        usc_watch *w = make(s->config, 1, names, USC_BF16);
        char got[1024] = "";
        double value;
        long times, row = 0;
        usc_error err;
        for (const char *at = s->amplitudes; next_amplitude(&at, &value, &times);)
            for (; times > 0; times--, row++) {
                char here[64] = "";
                const usc_watch_row r = gradient(row, 0, 0, value);
                assert_int_equal(usc_watch_feed(w, &r, 1, &err), USC_OK);
                assert_int_equal(
                    usc_watch_step(w, row, 1000 + s->seconds * (double)row, &err),
                    USC_OK);
                said(w, false, here, sizeof here);
                const size_t n = strlen(got);
                if (here[0] != '\0')
                    (void)snprintf(got + n, sizeof got - n, "%s%ld:%s", n > 0 ? " " : "",
                                   row, here);
            }
        if (strcmp(got, s->verdicts) != 0)
            fail_msg("%s: '%s', not '%s'", s->name, got, s->verdicts);
        usc_watch_free(w);
    }
}

/* ---- which parameters ---- */

static void test_sampling(void **state)
{
    static const struct {
        const char *config, *names[8], *seen; /* one letter a tensor: x seen */
        usc_dtype dtype;
    } rows[] = {
        {"",
         {"a.weight", "a.bias", "b.weight", "c.weight", "d.weight", "e.weight"},
         "x...x.",
         USC_BF16},
        {"grad_sample_interval:1", {"a.weight", "a.bias", "b.weight"}, "x.x", USC_F32},
        {"grad_sample_interval:2", {"a.weight", "b.weight", "c.weight"}, "x.x", USC_F32},
        {"grad_sample_interval:1", {"a.w", "a.b.weight", "c"}, ".x.", USC_F32},
        {"", {"a.w1", "a.w2", "b.weight", "c.weight"}, "xx.x", USC_F32},
        {"grad_sample_interval:1", {"a.weight", "b.weight"}, "..", USC_F16},
        {"enable:false", {"a.weight"}, ".", USC_BF16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t t = 0; rows[i].seen[t] != '\0'; t++) {
            usc_error err;
            char got[16] = "";
            usc_watch *w = make(rows[i].config, 1, rows[i].names, rows[i].dtype);
            const usc_watch_row r = gradient(0, 0, (int64_t)t, (double)NAN);
            assert_int_equal(usc_watch_feed(w, &r, 1, &err), USC_OK);
            assert_int_equal(usc_watch_step(w, 0, 1, &err), USC_OK);
            said(w, false, got, sizeof got);
            if (strcmp(got, rows[i].seen[t] == 'x' ? "E" : "") != 0)
                fail_msg("row %zu, tensor %zu: '%s'", i, t, got);
            usc_watch_free(w);
        }
}

/* ---- texts ---- */

static void test_texts_and_levels(void **state)
{
    static const char *const names[] = {"fc.weight", NULL};
    (void)state;
    usc_error err;
    usc_watch_event e;
    usc_watch *w = make("strikes_num:1", 1, names, USC_BF16);
    const usc_watch_row r = gradient(0, 0, 0, (double)NAN);
    assert_int_equal(usc_watch_feed(w, &r, 1, &err), USC_OK);
    assert_int_equal(usc_watch_step(w, 0, 7, &err), USC_OK);
    assert_true(usc_watch_next(w, &e));
    assert_string_equal(e.sentence,
                        "[Event][7.0 s] [Rank 0]: A grad-norm spike may happen, param "
                        "name fc.weight, abnormal value nan, previous value 0, history "
                        "avg 0, bp time 0, normal count 0.");
    assert_string_equal(usc_watch_kind_level(e.kind), "info");
    assert_true(usc_watch_next(w, &e));
    assert_string_equal(e.sentence,
                        "[Warning][7.0 s] [Rank 0]: feature detection detects abnormal "
                        "results!\nGrad-norm spike: index 0, time 7.0 s, param name "
                        "fc.weight, abnormal value nan, previous value 0, history avg 0, "
                        "bp time 0, normal count 0.");
    assert_string_equal(usc_watch_kind_level(e.kind), "warning");
    usc_watch_free(w);
}

/* Of a clock that counts from 1970 it is the date, after a restart, too. */
static void test_a_date_is_told(void **state)
{
    static const char *const names[] = {"fc.weight", NULL};
    enum { THEN = 1700000000, DAY = 86400 };
    (void)state;
    usc_error err;
    usc_watch_event e;
    void *bytes;
    size_t size;
    char want[64];
    const time_t at[] = {THEN, THEN + DAY};
    usc_watch *w = make("", 1, names, USC_F32);
    for (int i = 0; i < 2; i++) {
        struct tm parts;
        const usc_watch_row r = gradient(i, 0, 0, (double)NAN);
        assert_non_null(localtime_r(&at[i], &parts));
        assert_true(strftime(want, sizeof want, "[Event][%Y-%m-%d %H:%M:%S] [Rank 0]",
                             &parts) > 0);
        assert_int_equal(usc_watch_feed(w, &r, 1, &err), USC_OK);
        assert_int_equal(usc_watch_step(w, i, (double)at[i], &err), USC_OK);
        assert_true(usc_watch_next(w, &e));
        assert_memory_equal(e.sentence, want, strlen(want));
        assert_int_equal(usc_watch_save(w, &bytes, &size, &err), USC_OK);
        usc_watch_free(w);
        w = make("", 1, names, USC_F32);
        assert_int_equal(usc_watch_load(w, bytes, size, &err), USC_OK);
        usc_watch_saved_free(bytes);
    }
    usc_watch_free(w);
}

/* ---- the checksum, over ranks ---- */

/* At so many minutes: NaN on a rank (-1: none), an abnormal matmul on one, and what is
 * said, on which ranks. */
typedef struct minute {
    double at;
    int nan_on, abnormal_on;
    const char *said;
    bool wants; /* the checksum, after it */
} minute;

static void run_minutes(const char *config, usc_dtype dtype, const minute *rows, size_t n)
{
    static const char *const names[] = {"fc.weight", NULL};
    usc_watch *w = make(config, 2, names, dtype);
    for (size_t i = 0; i < n; i++) {
        char got[256] = "";
        usc_error err;
        usc_watch_row r[2] = {gradient((int64_t)i, rows[i].nan_on, 0, (double)NAN),
                              {.step = (int64_t)i,
                               .rank = rows[i].abnormal_on,
                               .site = USC_WATCH_MATMUL,
                               .value = 1}};
        if (rows[i].nan_on >= 0)
            assert_int_equal(usc_watch_feed(w, &r[0], 1, &err), USC_OK);
        if (rows[i].abnormal_on >= 0)
            assert_int_equal(usc_watch_feed(w, &r[1], 1, &err), USC_OK);
        assert_int_equal(usc_watch_step(w, (int64_t)i, 60 * rows[i].at, &err), USC_OK);
        said(w, true, got, sizeof got);
        if (strcmp(got, rows[i].said) != 0)
            fail_msg("%s: minute %g: '%s', not '%s'", config, rows[i].at, got,
                     rows[i].said);
        assert_int_equal(usc_watch_wants_checksum(w), rows[i].wants);
    }
    usc_watch_free(w);
}

static void test_checksum_is_for_all_ranks(void **state)
{
    static const minute rows[] = {{1, -1, -1, "", false},
                                  {2, 1, -1, "E1 W1 +0 +1 ", true},
                                  {3, -1, 0, "", true},
                                  {6.9, -1, -1, "", true},
                                  {7, -1, -1, "!0 -0 -1 ", false},
                                  {8, -1, 1, "", false},        /* nobody asked */
                                  {20, 0, -1, "E0 W0 ", false}, /* once in 180 minutes */
                                  {190, 0, -1, "E0 W0 +0 +1 ", true},
                                  {195, -1, -1, "-0 -1 ", false}};
    (void)state;
    run_minutes("strikes_num:1,with_checksum:true", USC_BF16, rows,
                sizeof rows / sizeof rows[0]);
}

static void test_checksum_needs_bfloat16_and_the_key(void **state)
{
    static const minute rows[] = {{2, 1, -1, "E1 W1 ", false}, {3, -1, 0, "", false}};
    (void)state;
    run_minutes("strikes_num:1,with_checksum:true", USC_F32, rows, 2);
    run_minutes("strikes_num:1", USC_BF16, rows, 2);
}

/* ---- over a restart, which the published one does not have ---- */

static void test_strikes_survive_a_restart(void **state)
{
    static const char *const names[] = {"fc.weight", NULL}, *const later[] = {
                                                                "new", "fc.weight", NULL};
    (void)state;
    usc_error err;
    void *bytes;
    size_t size;
    char got[16] = "";
    usc_watch *w = make("", 1, names, USC_BF16);
    for (int64_t i = 0; i < 2; i++) {
        const usc_watch_row r = gradient(i, 0, 0, (double)NAN);
        assert_int_equal(usc_watch_feed(w, &r, 1, &err), USC_OK);
        assert_int_equal(usc_watch_step(w, i, 1000 + 400 * (double)i, &err), USC_OK);
    }
    assert_int_equal(usc_watch_save(w, &bytes, &size, &err), USC_OK);
    usc_watch_free(w);
    w = make("", 1, later, USC_BF16);
    assert_int_equal(usc_watch_load(w, bytes, size, &err), USC_OK);
    usc_watch_saved_free(bytes);
    /* another process, whose clock begins anew */
    assert_int_equal(usc_watch_step(w, 1, 3, &err), USC_OK);
    const usc_watch_row r = gradient(2, 0, 1, (double)NAN); /* its new number */
    assert_int_equal(usc_watch_feed(w, &r, 1, &err), USC_OK);
    assert_int_equal(usc_watch_step(w, 2, 403, &err), USC_OK);
    said(w, false, got, sizeof got);
    assert_string_equal(got, "EW");
    usc_watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_texts_and_levels),
        cmocka_unit_test(test_a_date_is_told),
        cmocka_unit_test(test_checksum_is_for_all_ranks),
        cmocka_unit_test(test_checksum_needs_bfloat16_and_the_key),
        cmocka_unit_test(test_strikes_survive_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
