// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/watch_log.h: logs read and refused with a sentence that has the line,
// replayed to the events that a watch gives, shown; what is said of flipped bits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/x/watch_log.h>

#define HEAD                                                                             \
    "{\"ulpscope_watch\": 1, \"world\": 2, \"tensors\": [[\"a\", \"bfloat16\"], "        \
    "[\"b\", \"float32\", {\"ndim\": 1, \"sharded\": true}]]}\n"
#define LINE                                                                             \
    "{\"step\": 3, \"rank\": 1, \"site\": \"grad\", \"t\": 1.5, \"rows\": [[0, 2.5, "    \
    "10, 30, 8, 0, 1, \"ff\"], [1, 1, 1, Infinity, 1, 0, 0, \"0\"]]}\n"

static char path[] = "/tmp/test_watch_log_XXXXXX";

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

static void test_rows(void **state)
{
    (void)state;
    usc_watch_log *log;
    const usc_watch_row *rows;
    size_t n;
    double seconds;
    usc_error err;
    write_file(HEAD LINE "\n{\"step\": 4, \"rank\": 0, \"site\": \"loss\", \"t\": 2, "
                         "\"rows\": [[null, NaN]]}");
    assert_int_equal(usc_watch_log_open(path, NULL, &log, &err), USC_OK);
    const usc_watch_log_info *info = usc_watch_log_about(log);
    assert_int_equal(info->world, 2);
    assert_int_equal(info->n_tensors, 2);
    assert_string_equal(info->tensors[1].name, "b");
    assert_int_equal(info->tensors[0].dtype, USC_BF16);
    assert_int_equal(info->tensors[1].ndim, 1);
    assert_true(info->tensors[1].sharded && !info->tensors[0].sharded);
    assert_int_equal(usc_watch_log_next(log, &rows, &n, &seconds, &err), USC_OK);
    assert_int_equal(n, 2);
    assert_true(seconds == 1.5 && rows[0].step == 3 && rows[0].rank == 1);
    assert_true(rows[0].max_abs == 2.5 && rows[0].sum_abs == 10 && rows[0].sum_sq == 30);
    assert_true(rows[0].numel == 8 && rows[0].n_zero == 1 && rows[0].hash64 == 0xff);
    assert_true(isinf(rows[1].sum_sq));
    assert_int_equal(usc_watch_log_next(log, &rows, &n, &seconds, &err), USC_OK);
    assert_true(n == 1 && rows[0].tensor == -1 && isnan(rows[0].value));
    assert_int_equal(rows[0].site, USC_WATCH_LOSS);
    assert_int_equal(usc_watch_log_next(log, &rows, &n, &seconds, &err), USC_OK);
    assert_int_equal(n, 0);
    usc_watch_log_close(log);
}

static void test_bad_logs_are_refused(void **state)
{
    static const struct {
        const char *text, *error;
        int64_t line;
    } rows[] = {
        {"{\"ulpscope_watch\": 2, \"world\": 1, \"tensors\": []}\n", "version 2", 1},
        {"{\"ulpscope_watch\": \"1\", \"world\": 1, \"tensors\": []}\n", "is a version",
         1},
        {"{\"ulpscope_watch\": 1, \"world\": 0, \"tensors\": []}\n", "\"world\"", 1},
        {"{\"ulpscope_watch\": 1, \"world\": 1}\n", "\"tensors\"", 1},
        {"{\"ulpscope_watch\": 1, \"world\": 1, \"tensors\": [[\"a\"]]}\n",
         "[name, dtype]", 1},
        {"{\"ulpscope_watch\": 1, \"world\": 1, \"tensors\": [[\"a\", \"float32\"], "
         "[\"a\", "
         "\"float32\"]]}\n",
         "stands twice", 1},
        {HEAD "{\"step\"\n" LINE, "no JSON", 2},
        {HEAD LINE "{\"step\": -1}\n", "\"step\"", 3},
        {HEAD "{\"step\": 1, \"rank\": 2}\n", "\"rank\"", 2},
        {HEAD "{\"step\": 1, \"rank\": 0, \"site\": \"gradient\"}\n", "\"site\"", 2},
        {HEAD "{\"step\": 1, \"rank\": 0, \"site\": \"grad\", \"t\": []}\n", "\"t\"", 2},
        {HEAD "{\"step\": 1, \"rank\": 0, \"site\": \"grad\", \"t\": 1}\n", "\"rows\"",
         2},
        {HEAD "{\"step\": 1, \"rank\": 0, \"site\": \"grad\", \"t\": 1, \"rows\": [[2, "
              "1]]}\n",
         "a row is", 2},
        {HEAD
         "{\"step\": 1, \"rank\": 0, \"site\": \"grad\", \"t\": 1, \"rows\": [[0, 1, 1, "
         "1, -1, 0, 0]]}\n",
         "a row is", 2},
        {HEAD
         "{\"step\": 1, \"rank\": 0, \"site\": \"grad\", \"t\": 1, \"rows\": [[0, 1, 1, "
         "1, 1, 0, 0, \"xyz\"]]}\n",
         "a row is", 2},
        {"step,acc\n1,2\n", "--key", -2},
        {"", "is empty", -2},
    };
    (void)state;
    usc_watch_config config;
    usc_watch_config_init(&config, USC_WATCH_SOUND);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_watch_replay *r;
        usc_error err = {0};
        write_file(rows[i].text);
        const usc_status st = usc_watch_replay_run(path, NULL, &config, &r, &err);
        if (st == USC_OK || strstr(err.text, rows[i].error) == NULL)
            fail_msg("row %zu: %s", i, err.text);
        if (rows[i].line >= 0) assert_int_equal(err.where, rows[i].line);
        assert_null(r);
    }
    usc_error err;
    usc_watch_log *log;
    assert_int_equal(usc_watch_log_open("/nowhere/x", NULL, &log, &err), USC_E_NOT_FOUND);
}

/* One tensor of one rank over 100 steps; at 90 an element is 1000 times as large. */
static void write_run(bool cut)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs(HEAD, f);
    for (int step = 0; step < 100; step++)
        for (int rank = 0; rank < 2; rank++)
            (void)fprintf(f,
                          "{\"step\": %d, \"rank\": %d, \"site\": \"grad\", \"t\": %d, "
                          "\"rows\": [[0, %g, 8, 9, 8, 0, 0, \"1\"]]}\n",
                          step, rank, step, step == 90 && rank == 1 ? 4000.0 : 4.0);
    if (cut) (void)fputs("{\"step\": 100, \"ra", f);
    assert_int_equal(fclose(f), 0);
}

static char *shown(const usc_watch_replay *r,
                   usc_status (*show)(const usc_watch_replay *, FILE *, usc_error *))
{
    char *text = NULL;
    size_t size;
    usc_error err;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    assert_int_equal(show(r, to, &err), USC_OK);
    assert_int_equal(fclose(to), 0);
    return text;
}

static usc_status table(const usc_watch_replay *r, FILE *to, usc_error *err)
{
    return usc_watch_replay_table(r, 80, to, err);
}

static void test_a_replay_names_and_shows(void **state)
{
    (void)state;
    usc_watch_config config;
    usc_watch_replay *r;
    usc_error err;
    usc_watch_config_init(&config, USC_WATCH_SOUND);
    write_run(true);
    assert_int_equal(usc_watch_replay_run(path, NULL, &config, &r, &err), USC_OK);
    assert_int_equal(r->n_steps, 100);
    assert_int_equal(r->n_events, 1);
    assert_int_equal(r->events[0].kind, USC_WATCH_OUTLIER);
    assert_int_equal(r->events[0].step, 90);
    assert_int_equal(r->events[0].rank, 1);
    assert_string_equal(r->events[0].name, "a");
    assert_non_null(strstr(r->note, "line 202, the last one, was cut off"));
    assert_true(r->scores[90] > 1 && r->scores[89] < 1);
    char *text = shown(r, table), *json = shown(r, usc_watch_replay_json),
         *html = shown(r, usc_watch_replay_html);
    assert_non_null(strstr(text, "1 event; the first at step 90, 'a', rank 1"));
    assert_non_null(strstr(text, "\u2588"));
    assert_non_null(strstr(json, "\"kind\": \"outlier\", \"level\": \"warning\", "
                                 "\"tensor\": \"a\", \"rank\": 1"));
    assert_non_null(strstr(html, "<td>90<td>temporal<td>outlier"));
    free(text);
    free(json);
    free(html);
    usc_watch_replay_free(r);
}

/* Gradient norms of other tools: CSV, JSON lines. */
static void test_curves(void **state)
{
    static const struct {
        const char *form, *head, *key;
    } forms[] = {
        {"CSV", "step,grad_norm\n", NULL}, {"JSON", "", NULL}, {"CSV", "step,g\n", "g"}};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        usc_watch_config config;
        usc_watch_replay *r;
        usc_error err;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(forms[i].head, f);
        for (int step = 0; step < 200; step++) {
            const double norm = step == 150 ? 1e6 : 1 + 0.1 * (step % 7);
            if (i == 1)
                (void)fprintf(f, "{\"step\": %d, \"grad_norm\": %g}\n", step, norm);
            else
                (void)fprintf(f, "%d,%g\n", step, norm);
        }
        assert_int_equal(fclose(f), 0);
        usc_watch_config_init(&config, USC_WATCH_SOUND);
        const usc_status st = usc_watch_replay_run(path, forms[i].key, &config, &r, &err);
        if (st != USC_OK) fail_msg("%s: %s", forms[i].form, err.text);
        assert_string_equal(r->form, forms[i].form);
        assert_int_equal(r->n_events, 1);
        assert_int_equal(r->events[0].kind, USC_WATCH_SPIKE);
        assert_int_equal(r->events[0].step, 150);
        usc_watch_replay_free(r);
    }
}

/* Of a curve: rows of a column, the first sentence of an event, and whether anything was
 * looked at at all. */
static void test_a_curve_is_called_what_it_is(void **state)
{
    static const struct {
        const char *head, *key;
        int n;
        double spike; /* at the last row but one; 0: none */
        const char *sentence;
        bool judged;
        const char *config;
    } cases[] = {
        {"step,grad_norm\n", NULL, 82, 422,
         "the gradient norm 'grad_norm' became 2^8.7 times larger at step 80: 422", true,
         NULL},
        {"step,grad_norm\n", NULL, 82, 40, NULL, true, NULL}, /* as data do */
        {"step,grad_norm\n", NULL, 82, (double)NAN,
         "the gradient norm 'grad_norm' is NaN at step 80", true, NULL},
        {"step,gnorm\n", NULL, 82, 422,
         "the gradient norm 'gnorm' became 2^8.7 times larger at step 80: 422", true,
         NULL},
        {"step,train_loss\n", NULL, 82, (double)NAN,
         "the loss 'train_loss' is NaN at step 80", true, NULL},
        {"step,train/loss\n", "train/loss", 82, (double)INFINITY,
         "the loss 'train/loss' is Inf at step 80", true, NULL},
        {"step,train/loss\n", "train/loss", 82, 422, NULL, true, NULL},
        {"step,grad_norm\n", NULL, 6, 0, NULL, false, NULL},
        {"step,grad_norm\n", NULL, 9, 0, NULL, true, NULL},
        {"step,grad_norm\n", NULL, 82, 422, NULL, false, "enable:false"},
        {"step,grad_norm\n", NULL, 82, 422, NULL, false, "mode:asd"}, /* off by default */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_watch_config config;
        usc_watch_replay *r;
        usc_error err;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(cases[i].head, f);
        for (int step = 0; step < cases[i].n; step++)
            (void)fprintf(f, "%d,%.4f\n", step,
                          cases[i].spike != 0 && step == cases[i].n - 2
                              ? cases[i].spike
                              : 1.05 + 0.01 * (step % 5 - 2));
        assert_int_equal(fclose(f), 0);
        usc_watch_config_init(&config, USC_WATCH_SOUND);
        if (cases[i].config != NULL)
            assert_int_equal(usc_watch_config_parse(&config, cases[i].config, &err),
                             USC_OK);
        if (usc_watch_replay_run(path, cases[i].key, &config, &r, &err) != USC_OK)
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(r->n_events, cases[i].sentence != NULL ? 1 : 0);
        assert_int_equal(r->judged, cases[i].judged);
        if (r->n_events > 0 && strstr(r->events[0].sentence, cases[i].sentence) == NULL)
            fail_msg("%zu: %s", i, r->events[0].sentence);
        if (strstr(r->note, "the loss") != NULL) fail_msg("%zu: %s", i, r->note);
        char *text = shown(r, table);
        const char *last = r->n_events > 0   ? "not watched: elements, weights"
                           : cases[i].judged ? "nothing abnormal in what was watched"
                                             : "nothing in this log could be judged";
        if (strstr(text, last) == NULL) fail_msg("%zu: %s", i, text);
        free(text);
        usc_watch_replay_free(r);
    }
}

static void test_what_would_be_seen(void **state)
{
    static const usc_watch_level level = {.rms = 1e-4, .wander = 0.4, .numel = 1 << 20};
    (void)state;
    usc_watch_config config;
    usc_watch_seen seen[USC_N_WATCH_DETECTORS];
    size_t n;
    usc_error err;
    usc_watch_config_init(&config, USC_WATCH_SOUND);
    config.detectors = 1u << USC_WATCH_BY_TEMPORAL | 1u << USC_WATCH_BY_ASD;
    assert_int_equal(usc_watch_explain(&level, 1, USC_BF16, &config, seen, &n, &err),
                     USC_OK);
    assert_int_equal(n, 2);
    assert_true(seen[0].share[14] == 1 && seen[1].share[14] == 1); /* the top exponent */
    assert_true(seen[0].share[0] == 0 && seen[0].clean == 0 && seen[1].clean == 0);
    assert_true(seen[0].mean > seen[1].mean && seen[1].mean > 0.05);
    /* a level of its own hides what another shows: bit 11 is set above 2^-17 alone */
    usc_watch_level both[] = {level, level};
    both[0].rms = 1e-2;
    for (int k = 0; k < 2; k++) {
        both[k].spared = false;
        both[1 - k].spared = true;
        both[1].rms = 1e-8;
        assert_int_equal(usc_watch_explain(both, 2, USC_BF16, &config, seen, &n, &err),
                         USC_OK);
        assert_true(k == 0 ? seen[0].share[11] == 0 : seen[0].share[11] > 0.9);
    }
    both[0].spared = both[1].spared = true;
    assert_int_equal(usc_watch_explain(both, 2, USC_BF16, &config, seen, &n, &err),
                     USC_E_ARG);
    assert_int_equal(usc_watch_explain(&level, 1, USC_I32, &config, seen, &n, &err),
                     USC_E_DTYPE);
    assert_int_equal(usc_watch_explain(&level, 0, USC_BF16, &config, seen, &n, &err),
                     USC_E_ARG);
}

static void test_levels_of_a_log(void **state)
{
    (void)state;
    usc_watch_level levels[4];
    usc_dtype dtype;
    int32_t world;
    size_t n;
    usc_error err;
    write_run(false);
    assert_int_equal(
        usc_watch_log_levels(path, NULL, levels, 4, &n, &dtype, &world, &err), USC_OK);
    assert_int_equal(n, 1); /* nothing is known of the other */
    assert_int_equal(dtype, USC_BF16);
    assert_true(fabs(levels[0].rms - sqrt(9.0 / 8)) < 1e-12 && levels[0].wander < 1e-6);
    assert_true(levels[0].mean > 0 && levels[0].mean <= levels[0].rms);
    assert_true(levels[0].peak >= 0 && levels[0].peak_wander > 0 && world == 2);
    assert_string_equal(levels[0].name, "a");
    write_file(HEAD);
    assert_int_equal(
        usc_watch_log_levels(path, NULL, levels, 4, &n, &dtype, &world, &err),
        USC_E_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_bad_logs_are_refused),
        cmocka_unit_test(test_a_replay_names_and_shows),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_a_curve_is_called_what_it_is),
        cmocka_unit_test(test_what_would_be_seen),
        cmocka_unit_test(test_levels_of_a_log),
    };
    const int file = mkstemp(path);
    if (file < 0) return 1;
    (void)close(file);
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return result;
}
