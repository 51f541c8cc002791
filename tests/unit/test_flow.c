// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/flow.h: where NaN and Inf are born, told from those that are carried on,
// meant or left in memory that nobody wrote.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ulpscope/x/flow.h>

enum { MOST_TENSORS = 4, ROOM = 200 };

/* A call and what is said of it. Tensors of 8 float16 are words: i (in), o (out) or m
 * (mutated), the number of the storage, then how many are NaN (N3), Inf (+3) and -Inf
 * (-3); a view of a part of it says its size (/4). */
typedef struct step {
    const char *op, *args, *tensors;
    usc_flow_kind kind;
    int64_t source;
} step;

#define NEG_FILL "{\"args\": [{\"tensor\": true}, {\"float\": \"-inf\"}], \"kwargs\": {}}"

static usc_call_arg tensor_of(const char *word, char *stats)
{
    usc_call_arg arg = {.storage_bytes = 16, .dtype_name = "float16", .stats = stats};
    arg.role = word[0] == 'i'   ? USC_ROLE_IN
               : word[0] == 'o' ? USC_ROLE_OUT
                                : USC_ROLE_MUTATED;
    arg.path = word[0] == 'o' ? "out[0]" : "args[0]";
    char *end;
    arg.storage = strtol(word + 1, &end, 10);
    long n = 8, n_nan = 0, n_pos = 0, n_neg = 0;
    while (*end != '\0' && *end != ' ') {
        long *to = *end == 'N'   ? &n_nan
                   : *end == '+' ? &n_pos
                   : *end == '-' ? &n_neg
                                 : &n;
        *to = strtol(end + 1, &end, 10);
    }
    (void)snprintf(stats, ROOM,
                   "{\"n\":%ld,\"n_nan\":%ld,\"n_pos_inf\":%ld,\"n_neg_inf\":%ld,"
                   "\"n_zero\":0,\"min\":-300.5,\"max\":2}",
                   n, n_nan, n_pos, n_neg);
    return arg;
}

/* As a running session hands it over: numbers, no text. */
static void take_range(usc_call_arg *arg, usc_range *range)
{
    assert_true(usc_call_arg_range(arg, range));
    arg->stats = NULL;
    if (range->n == 0) range->min = range->max = (double)NAN;
    arg->range = range;
}

static void run(const step *steps, int n, bool ranges)
{
    usc_flow *flow = NULL;
    assert_int_equal(usc_flow_create(&flow, NULL), USC_OK);
    for (int i = 0; i < n; i++) {
        char stats[MOST_TENSORS][ROOM];
        usc_range range[MOST_TENSORS];
        usc_call_arg arg[MOST_TENSORS];
        const step *s = &steps[i];
        usc_call call = {.sequence = i + 1, .op = s->op, .args = s->args, .arg = arg};
        for (const char *word = s->tensors; word != NULL; call.n_args++) {
            arg[call.n_args] = tensor_of(word, stats[call.n_args]);
            if (ranges) take_range(&arg[call.n_args], &range[call.n_args]);
            word = strchr(word, ' ');
            if (word != NULL) word++;
        }
        usc_flow_event event;
        assert_int_equal(usc_flow_call(flow, &call, &event, NULL), USC_OK);
        if (event.kind != s->kind || event.source != s->source)
            fail_msg("call %d, %s: %s from %d, not %s from %d", i + 1, s->op,
                     usc_flow_text(event.kind), (int)event.source, usc_flow_text(s->kind),
                     (int)s->source);
        if (event.kind == USC_FLOW_BORN && event.from >= 0)
            assert_true(event.largest > 300 && event.largest < 301);
    }
    usc_flow_free(flow);
}

#define RUN(steps)                                                                       \
    for (int ranges = 0; ranges < 2; ranges++)                                           \
    run(steps, (int)(sizeof(steps) / sizeof *(steps)), ranges == 1)

static void test_a_birth_is_told_from_what_carries_it(void **state)
{
    (void)state;
    static const step steps[] = {{"aten::mm", NULL, "i1 o2", USC_FLOW_CLEAN, 0},
                                 {"aten::mul", NULL, "i2 o3+5", USC_FLOW_BORN, 2},
                                 {"aten::relu", NULL, "i3+5 o4+5", USC_FLOW_CARRIED, 2},
                                 {"aten::sub", NULL, "i4+5 o5N5", USC_FLOW_TURNED, 4},
                                 {"aten::add", NULL, "i2 i5N5 o6N5", USC_FLOW_CARRIED, 4},
                                 {"aten::nan_to_num", NULL, "i6N5 o7", USC_FLOW_ENDED, 4},
                                 {"aten::mul", NULL, "i7 o8", USC_FLOW_CLEAN, 0},
                                 {"aten::log_", NULL, "i8 m8-2", USC_FLOW_BORN, 8},
                                 {"aten::neg", NULL, "i8-2 o9+2", USC_FLOW_CARRIED, 8}};
    RUN(steps);
}

static void test_what_comes_from_outside_is_nobodys_birth(void **state)
{
    (void)state;
    static const step steps[] = {{"aten::mm", NULL, "i1N1 o2N8", USC_FLOW_ENTERED, 1},
                                 {"aten::mm", NULL, "i1N1 o3N8", USC_FLOW_CARRIED, 1},
                                 {"aten::relu", NULL, "i3N8 o4N8", USC_FLOW_CARRIED, 1}};
    RUN(steps);
}

/* torch.tensor([nan]): an empty tensor that is filled by no operator. What nobody wrote
 * is garbage still. */
static void test_what_was_written_unseen_comes_from_outside(void **state)
{
    (void)state;
    const char nan[] = "{\"n\":2,\"n_nan\":1,\"n_pos_inf\":0,\"n_neg_inf\":0}";
    usc_flow *flow = NULL;
    usc_flow_event event;
    assert_int_equal(usc_flow_create(&flow, NULL), USC_OK);
    for (int filled = 0; filled < 2; filled++) {
        usc_call_arg made = {.role = USC_ROLE_OUT,
                             .path = "out[0]",
                             .storage = filled + 1,
                             .version = 3 * filled + 1,
                             .stats = nan,
                             .dtype_name = "float32"};
        usc_call_arg arg[2] = {made, made};
        usc_call call = {
            .sequence = 1, .op = "aten::empty.memory_format", .arg = &made, .n_args = 1};
        assert_int_equal(usc_flow_call(flow, &call, &event, NULL), USC_OK);
        assert_int_equal(event.kind, USC_FLOW_CLEAN);
        arg[0].role = USC_ROLE_IN;
        arg[0].version += filled;
        arg[1].storage = 7;
        arg[1].version = 9;
        call = (usc_call){.sequence = 2, .op = "aten::_to_copy", .arg = arg, .n_args = 2};
        assert_int_equal(usc_flow_call(flow, &call, &event, NULL), USC_OK);
        assert_int_equal(event.kind, filled == 1 ? USC_FLOW_ENTERED : USC_FLOW_BORN);
    }
    usc_flow_free(flow);
}

/* An excuse is a hole: a mask of -inf excuses -inf, and neither +Inf nor NaN. */
static void test_a_mask_is_meant_and_excuses_its_own_sign_alone(void **state)
{
    (void)state;
    static const step steps[] = {
        {"aten::masked_fill.Scalar", NEG_FILL, "i1 o2-4", USC_FLOW_WRITTEN, 1},
        {"aten::add", NULL, "i3 i2-4 o4-4", USC_FLOW_CARRIED, 1},
        {"aten::_softmax", NULL, "i4-4 o5", USC_FLOW_ENDED, 1},
        {"aten::add", NULL, "i3 i2-4 o6+1-4", USC_FLOW_TURNED, 4},
        {"aten::_softmax", NULL, "i4-4 o7N8", USC_FLOW_TURNED, 5},
        {"aten::fill_.Scalar", NEG_FILL, "i8 m8+3", USC_FLOW_BORN, 6},
        {"aten::fill_.Scalar", NEG_FILL, "i9 m9-8", USC_FLOW_WRITTEN, 7}};
    RUN(steps);
}

static void test_memory_that_nobody_wrote_is_no_source(void **state)
{
    (void)state;
    static const step steps[] = {
        {"aten::empty.memory_format", NULL, "o1N3", USC_FLOW_CLEAN, 0},
        {"aten::detach", NULL, "i1N3 o1N3", USC_FLOW_CLEAN, 0},
        {"aten::copy_", NULL, "i1N3 i2 m1/4", USC_FLOW_CLEAN, 0},
        {"aten::clone", NULL, "i1N1 o4N1", USC_FLOW_BORN, 4},
        {"aten::copy_", NULL, "i1N1 i2 m1", USC_FLOW_CLEAN, 0},
        {"aten::mul_", NULL, "i1 m1N2", USC_FLOW_BORN, 6},
        {"aten::copy_", NULL, "i1N2 i4N1 m1N1", USC_FLOW_CARRIED, 4},
        {"aten::empty.memory_format", NULL, "o5N1", USC_FLOW_CLEAN, 0},
        {"aten::log_", NULL, "i5 m5N2 o5N2", USC_FLOW_BORN, 9},
        {"aten::empty.memory_format", NULL, "o6N3", USC_FLOW_CLEAN, 0},
        {"fsdp::all_gather_copy_in", NULL, "i2 i6N3 m6N2 o6N2", USC_FLOW_CLEAN, 0},
        {"c10d::_allgather_base_", NULL, "i6N2 i6 m6", USC_FLOW_CLEAN, 0},
        {"aten::empty.memory_format", NULL, "o7N3", USC_FLOW_CLEAN, 0},
        {"fsdp::all_gather_copy_in", NULL, "i4N1 i7N3 m7N4", USC_FLOW_CARRIED, 4}};
    RUN(steps);
}

/* What lay there before the first call is not read where it is only written over. */
static void test_what_is_written_over_does_not_come_in(void **state)
{
    (void)state;
    static const step steps[] = {{"aten::copy_", NULL, "i1N3 i2 m1", USC_FLOW_CLEAN, 0},
                                 {"aten::add_", NULL, "i3N3 m3N3", USC_FLOW_ENTERED, 2},
                                 {"aten::copy_", NULL, "i3N3 m3", USC_FLOW_ENDED, 2},
                                 {"aten::copy_", NULL, "i4N3 i2 m4N1", USC_FLOW_BORN, 4},
                                 {"aten::view", NULL, "i5N1 o5N1", USC_FLOW_CLEAN, 0},
                                 {"aten::copy_", NULL, "i5N1 i2 m5", USC_FLOW_CLEAN, 0},
                                 {"aten::view", NULL, "i6N1 o6N1", USC_FLOW_CLEAN, 0},
                                 {"aten::mm", NULL, "i6N1 o7N1", USC_FLOW_ENTERED, 8}};
    RUN(steps);
}

static void test_calls_with_calls_below_and_odd_rows_tell_nothing(void **state)
{
    (void)state;
    usc_flow *flow = NULL;
    usc_flow_event event;
    usc_call_arg arg = {.role = USC_ROLE_OUT, .path = "out[0]", .storage = 1};
    static const char *const stats[] = {NULL,
                                        "",
                                        "{",
                                        "{\"n_nan\":null}",
                                        "{\"n_nan\":x}",
                                        "{\"n_nan\":-1}",
                                        "{\"n_nan\":1e300,\"n_pos_inf\":1e17}"};
    assert_int_equal(usc_flow_create(&flow, NULL), USC_OK);
    usc_call call = {.sequence = 1, .op = "aten::linear", .n_args = 1, .arg = &arg};
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++) {
        arg.stats = stats[i];
        assert_int_equal(usc_flow_call(flow, &call, &event, NULL), USC_OK);
        assert_int_equal(event.kind, USC_FLOW_CLEAN);
    }
    arg.stats = "{\"n\":4,\"n_nan\":1}";
    call.n_children = 1;
    assert_int_equal(usc_flow_call(flow, &call, &event, NULL), USC_OK);
    assert_int_equal(event.kind, USC_FLOW_CLEAN);
    call.n_children = 0;
    call.args = "{\"args\": [{\"float\": ";
    assert_int_equal(usc_flow_call(flow, &call, &event, NULL), USC_OK);
    assert_int_equal(event.kind, USC_FLOW_BORN);
    usc_flow_free(flow);
    usc_flow_free(NULL);
    assert_string_equal(usc_flow_text((usc_flow_kind)99), "unknown");
}

static void give(usc_births *b, int64_t n, const char *op, const char *words)
{
    char stats[MOST_TENSORS][ROOM];
    usc_call_arg arg[MOST_TENSORS];
    usc_call call = {.sequence = n,
                     .step = n / 10,
                     .op = op,
                     .phase = "forward",
                     .module_path = "net.0",
                     .arg = arg};
    for (const char *word = words; word != NULL; call.n_args++) {
        arg[call.n_args] = tensor_of(word, stats[call.n_args]);
        word = strchr(word, ' ');
        if (word != NULL) word++;
    }
    assert_int_equal(usc_births_call(b, &call, NULL), USC_OK);
}

static void test_births_are_kept_and_counted_and_storages_forgotten(void **state)
{
    (void)state;
    usc_births *b = NULL;
    int64_t kept;
    assert_int_equal(usc_births_create(2, &b, NULL), USC_OK);
    give(b, 10, "aten::mm", "i1-8 o2-8"); /* entered, and most likely meant */
    give(b, 11, "aten::mul", "i3 o4+5");
    give(b, 12, "aten::relu", "i4+5 o5+5");
    give(b, 13, "aten::mm", "i6N1 o7N8");
    assert_int_equal(usc_births_count(b, &kept), 2);
    give(b, 14, "aten::sub", "i5+5 o8N5");
    assert_int_equal(usc_births_count(b, &kept), 3);
    assert_int_equal(kept, 2);
    const usc_birth *born = usc_births_at(b, 0), *entered = usc_births_at(b, 1);
    assert_null(usc_births_at(b, 2));
    assert_null(usc_births_at(b, -1));
    assert_string_equal(born->value, "Inf");
    assert_string_equal(born->op, "aten::mul");
    assert_string_equal(
        born->sentence,
        "Inf is born in aten::mul, call 11, step 1, forward, module net.0: 5 +Inf among "
        "8 "
        "elements of out[0]; all inputs are finite, the largest value is 300 (args[0]), "
        "float16 ends at 65504; args[0] lies from -300 to 2");
    assert_int_equal(entered->event.kind, USC_FLOW_ENTERED);
    assert_non_null(strstr(entered->sentence, "NaN entered at aten::mm"));
    usc_births_forget(b, 7);
    give(b, 15, "aten::relu", "i7N8 o9N8"); /* another storage of that number */
    assert_int_equal(usc_births_count(b, NULL), 4);
    usc_births_forget(b, 99);
    usc_births_free(b);
    usc_births_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_birth_is_told_from_what_carries_it),
        cmocka_unit_test(test_what_comes_from_outside_is_nobodys_birth),
        cmocka_unit_test(test_what_was_written_unseen_comes_from_outside),
        cmocka_unit_test(test_a_mask_is_meant_and_excuses_its_own_sign_alone),
        cmocka_unit_test(test_memory_that_nobody_wrote_is_no_source),
        cmocka_unit_test(test_what_is_written_over_does_not_come_in),
        cmocka_unit_test(test_calls_with_calls_below_and_odd_rows_tell_nothing),
        cmocka_unit_test(test_births_are_kept_and_counted_and_storages_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
