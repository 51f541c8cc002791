// SPDX-License-Identifier: Apache-2.0
// Whole checks by workers that are shell scripts (ulpscope/x/run.h): any program serves;
// one that dies, hangs or cannot start; a run that goes on.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/run.h>

#include "run/agenda.h"
#include "run/crew.h"
#include "run/identity.h"
#include "run/known.h"
#include "run/rooms.h"
#include "trace_sample.h"

extern char **environ;

/* ---- whole checks by workers that are shell scripts ---- */

typedef struct bench {
    char *folder, trace[600], out[600], said[4096];
    char *command[4];
    usc_run_hooks hooks;
    int n_asked;
} bench;

static void say(void *ctx, const char *text)
{
    bench *b = ctx;
    const size_t n = strlen(b->said);
    (void)snprintf(b->said + n, sizeof b->said - n, "%s\n", text);
}

static char *const *command(void *ctx, usc_error *err)
{
    (void)err;
    bench *b = ctx;
    b->n_asked++;
    return b->command;
}

static void begin(bench *b, const char *script)
{
    static char sh[] = "/bin/sh", flag[] = "-c";
    usc_trace_writer *w;
    memset(b, 0, sizeof *b);
    b->folder = sample_folder();
    (void)snprintf(b->trace, sizeof b->trace, "%s/trace", b->folder);
    (void)snprintf(b->out, sizeof b->out, "%s/out", b->folder);
    assert_int_equal(usc_trace_create(b->trace, NULL, &w, NULL), USC_OK);
    assert_int_equal(sample_begin(w, NULL), USC_OK);
    for (int64_t i = 1; i <= 3; i++)
        assert_int_equal(sample_call(w, i, NULL), USC_OK);
    assert_int_equal(usc_trace_finish(w, true, NULL), USC_OK);
    b->command[0] = sh;
    b->command[1] = flag;
    b->command[2] = strdup(script);
    b->hooks =
        (usc_run_hooks){.ctx = b, .command = command, .environment = environ, .say = say};
}

static usc_status check(bench *b, usc_check_options o, usc_run_end *end, usc_error *err)
{
    o.trace = b->trace;
    o.out = b->out;
    o.device = "cpu";
    o.call = -1;
    o.cores = 1;
    return usc_check_trace(&o, &b->hooks, end, err);
}

static void finish(bench *b)
{
    free(b->command[2]);
    sample_remove(b->folder);
    free(b->folder);
}

static usc_status tell_row(void *ctx, const usc_result_row *r, usc_error *err)
{
    char *text = ctx;
    const size_t n = strlen(text);
    (void)err;
    (void)snprintf(text + n, 1024 - n, "%lld %s: %s\n", (long long)r->call, r->verdict,
                   r->sentence);
    return USC_OK;
}

static void results(const bench *b, char *text)
{
    usc_result *r;
    *text = '\0';
    assert_int_equal(usc_result_open(b->out, &r, NULL), USC_OK);
    assert_int_equal(usc_result_walk(r, tell_row, text, NULL), USC_OK);
    usc_result_close(r);
}

#define READY "echo '{\"ready\": {\"who\": \"sh\"}}' >&3; "
/* Whole seconds are all that sh has. */
#define NOTE(name)                                                                       \
    "echo \"" name " $(($(cut -d. -f1 /proc/uptime) + 1))000000000\" "                   \
    "1<>/proc/self/fd/4; "
#define PASS "echo '{\"row\": {\"verdict\": \"pass\", \"sentence\": \"fine\"}}' >&3; "

static void test_any_program_that_speaks_the_protocol_is_a_worker(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024];
    begin(&b, READY "while read line; do " PASS "done");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    results(&b, text);
    assert_string_equal(text, "1 pass: fine\n2 pass: fine\n3 pass: fine\n");
    assert_non_null(strstr(b.said, "3 calls in "));
    finish(&b);
}

static void test_a_worker_that_dies_or_hangs_costs_its_call(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024];
    begin(&b, READY "while read line; do case $line in "
                    "*'\"call\": 1,'*) kill -SEGV $$;; "
                    "*'\"call\": 2,'*) " NOTE("reference") "exec sleep 60;; "
                                                           "esac; " PASS "done");
    const usc_check_options o = {.timeout = 0.3};
    assert_int_equal(check(&b, o, &end, &err), USC_OK);
    results(&b, text);
    assert_string_equal(
        text, "1 crashed: aten::add.Tensor: the device's process died of SIGSEGV\n"
              "2 unjudged: aten::mm: the reference took longer than 0.3 s\n"
              "3 pass: fine\n");
    finish(&b);
}

static void test_a_worker_that_cannot_start_ends_the_run_and_touches_nothing(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    begin(&b, "echo no such library >&2; exit 3");
    assert_int_not_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_string_equal(err.text,
                        "a worker left with exit code 3 while starting: no such "
                        "library");
    assert_int_not_equal(access(b.out, F_OK), 0);
    finish(&b);
    begin(&b, "echo '{\"fatal\": \"no device here\"}' >&3; cat");
    assert_int_not_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_string_equal(err.text, "no device here");
    finish(&b);
    begin(&b, READY "read line; echo 'not ours' >&3; cat");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_E_CORRUPT);
    finish(&b);
}

/* It answers the first worker alone, which dies at its second call. */
static void test_a_device_that_is_lost_ends_the_run_and_loses_nothing(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024], script[1024];
    begin(&b, "");
    (void)snprintf(script, sizeof script,
                   "mkdir %s.met 2>&- && answers=true || answers=false; "
                   "echo '{\"ready\": {\"who\": \"sh\"}, \"answers\": '$answers'}' >&3; "
                   "read line; " PASS
                   "read line; echo 'it burns\033[0m' >&2; kill -ABRT $$",
                   b.out);
    free(b.command[2]);
    b.command[2] = strdup(script);
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_E_ARG);
    assert_string_equal(err.text,
                        "the device is lost: it answered when this began, and does not "
                        "any more, in a new process, too; ulpscope doctor looks for what "
                        "is missing; the results so far are safe, the same command goes "
                        "on from there");
    results(&b, text);
    assert_string_equal(text, "2 crashed: aten::mm: the device's process died of "
                              "SIGABRT; it last wrote: it burns[0m\n1 pass: fine\n");
    (void)snprintf(script, sizeof script, "%s.met", b.out);
    assert_int_equal(rmdir(script), 0);
    finish(&b);
}

static bool stop_at_once(void *ctx)
{
    return ((bench *)ctx)->n_asked > 0;
}

static void test_what_is_refused_or_stopped_starts_no_worker_in_vain(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    begin(&b, READY "while read line; do " PASS "done");
    const usc_check_options none = {.ops = "aten::bmm"};
    assert_int_equal(check(&b, none, &end, &err), USC_E_NOT_FOUND);
    assert_int_equal(b.n_asked, 0);
    b.hooks.stopped = stop_at_once;
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_int_equal(end, USC_RUN_INTERRUPTED);
    assert_int_not_equal(access(b.out, F_OK), 0);
    finish(&b);
}

static void test_a_run_that_was_cut_short_goes_on(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024];
    begin(&b, READY "read line; " PASS
                    "read line; echo '{\"fatal\": \"out of order\"}' >&3; cat");
    assert_int_not_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    free(b.command[2]);
    b.command[2] = strdup("echo '{\"ready\": {\"who\": \"bash\"}}' >&3; cat");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_E_EXISTS);
    assert_non_null(strstr(err.text, "since then: who was 'sh' and is 'bash'; --force"));
    free(b.command[2]);
    b.command[2] = strdup(READY "while read line; do " PASS "done");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_non_null(strstr(b.said, "resuming: 1 of 3 calls done"));
    results(&b, text);
    assert_string_equal(text, "1 pass: fine\n2 pass: fine\n3 pass: fine\n");
    char *inputs;
    assert_int_equal(usc_check_state_of(b.out, &inputs), USC_CHECK_DONE);
    assert_string_equal(inputs, "{\"who\":\"sh\"}");
    free(inputs);
    finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_program_that_speaks_the_protocol_is_a_worker),
        cmocka_unit_test(test_a_worker_that_dies_or_hangs_costs_its_call),
        cmocka_unit_test(
            test_a_worker_that_cannot_start_ends_the_run_and_touches_nothing),
        cmocka_unit_test(test_a_device_that_is_lost_ends_the_run_and_loses_nothing),
        cmocka_unit_test(test_what_is_refused_or_stopped_starts_no_worker_in_vain),
        cmocka_unit_test(test_a_run_that_was_cut_short_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
