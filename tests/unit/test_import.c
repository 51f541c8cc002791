// SPDX-License-Identifier: Apache-2.0
// Dumps of msprobe become traces: what each part of a call becomes. What is refused:
// test_import_bad.c.
// Tensors lie in .npy files here; files of torch need a worker (tests/py/test_import.py).
#include "import_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include <ulpscope/ulpscope.h>
#include <ulpscope/x/foreign.h>

#include "trace_sample.h"

static usc_trace *imported(void)
{
    usc_error err;
    usc_trace *t;
    if (import_as(false, NULL, &err) != USC_OK) fail_msg("%s", err.text);
    if (usc_trace_open(trace, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    return t;
}

static void arguments_of_every_kind_are_kept(void **state)
{
    (void)state;
    write_dump("\"Torch.linalg.norm.3.forward\": {\"input_args\": [" TENSOR(
        "") ", null, "
            "{\"type\": \"int\", \"value\": 7}, {\"type\": \"float\", \"value\": 2}, "
            "{\"type\": \"float\", \"value\": -Infinity}, {\"type\": \"bool\", "
            "\"value\": "
            "true}, {\"type\": \"str\", \"value\": \"a\\\"b\"}, [{\"type\": \"int\", "
            "\"value\": 1}, [" TENSOR(
                "") "]], {\"type\": \"torch.Size\", \"value\": [4, "
                    "5]}, {\"type\": \"slice\", \"value\": [null, 2, null]}, {\"type\": "
                    "\"ellipsis\", \"value\": \"...\"}, {\"type\": \"int64\", \"value\": "
                    "3}, {}], "
                    "\"input_kwargs\": {\"dtype\": {\"type\": \"torch.dtype\", "
                    "\"value\": "
                    "\"torch.float16\"}, \"device\": {\"type\": \"torch.device\", "
                    "\"value\": "
                    "\"npu:1\"}, \"x\": {\"type\": \"ProcessGroup\", \"group_id\": 1}}, "
                    "\"output\": [" TENSOR("") ", [" TENSOR("") "]]}");
    usc_trace *t = imported();
    const usc_call call = call_of(t, 1);
    assert_string_equal(call.op, "torch.linalg.norm");
    assert_string_equal(call.phase, "forward");
    assert_string_equal(
        call.args,
        "{\"args\": [{\"tensor\": true}, null, 7, 2.0, {\"float\": \"-inf\"}, true, "
        "\"a\\\"b\", "
        "[1, [{\"tensor\": true}]], [4, 5], {\"slice\": [null, 2, null]}, {\"ellipsis\": "
        "true}, "
        "3, {\"other\": \"undescribed\"}], \"kwargs\": {\"dtype\": {\"dtype\": "
        "\"float16\"}, "
        "\"device\": {\"device\": \"npu:1\"}, \"x\": {\"other\": \"ProcessGroup\"}}}");
    assert_int_equal(call.n_args, 4);
    const usc_call_arg *inner = arg_of(&call, USC_ROLE_IN, "args[7][1][0]");
    assert_int_equal(inner->blob, 0);
    assert_int_equal(inner->storage_bytes, 24);
    assert_string_equal(inner->device, "npu:0");
    assert_non_null(strstr(inner->stats, "\"min\":-1"));
    assert_non_null(arg_of(&call, USC_ROLE_OUT, "out[1][0]"));
    usc_trace_close(t);
}

static void content_is_that_of_the_file(void **state)
{
    (void)state;
    const void *bytes;
    int64_t size;
    usc_error err;
    write_npy("a.npy", "<f4");
    write_dump(CALL("Functional.relu.0.forward", FILED("a.npy"), FILED("a.npy")));
    usc_trace *t = imported();
    const usc_call call = call_of(t, 1);
    const usc_call_arg *in = arg_of(&call, USC_ROLE_IN, "args[0]");
    assert_int_not_equal(in->blob, 0);
    assert_int_equal(in->blob, arg_of(&call, USC_ROLE_OUT, "out[0]")->blob);
    assert_non_null(strstr(in->stats, "\"max\":5")); /* of the bytes, not the dump's */
    assert_int_equal(usc_trace_blob(t, in->blob, &bytes, &size, &err), USC_OK);
    const float values[6] = {0, 1, 2, 3, 4, 5};
    assert_int_equal(size, sizeof values);
    assert_memory_equal(bytes, values, sizeof values);
    usc_trace_close(t);
}

static void what_a_call_wrote_stands_in_the_storage_of_its_argument(void **state)
{
    (void)state;
    static const char *const names[] = {"Tensor.mul_", "Tensor.__iadd__"};
    for (int i = 0; i < 3; i++) {
        char text[2048];
        if (i < 2)
            snprintf(text, sizeof text,
                     CALL("%s.0.forward", TENSOR("") ", 2", TENSOR("")), names[i]);
        else
            snprintf(text, sizeof text,
                     "\"Functional.relu.0.forward\": {\"input_args\": [" TENSOR(
                         "") "], "
                             "\"input_kwargs\": {\"inplace\": {\"type\": \"bool\", "
                             "\"value\": true}}, "
                             "\"output\": [" TENSOR("") "]}");
        write_dump(text);
        usc_trace *t = imported();
        const usc_call call = call_of(t, 1);
        const usc_call_arg *in = arg_of(&call, USC_ROLE_IN, "args[0]");
        const usc_call_arg *left = arg_of(&call, USC_ROLE_MUTATED, "args[0]");
        assert_int_equal(in->storage, left->storage);
        assert_int_equal(left->generation, in->generation + 1);
        assert_int_equal(left->tensor, arg_of(&call, USC_ROLE_OUT, "out[0]")->tensor);
        usc_trace_close(t);
    }
    write_dump(CALL("Tensor.__invert__.0.forward", TENSOR(""), TENSOR("")));
    usc_trace *t = imported();
    const usc_call call = call_of(t, 1);
    assert_int_equal(call.n_args, 2);
    usc_trace_close(t);
}

static void what_autocast_rounded_is_kept_as_it_ran(void **state)
{
    (void)state;
    const void *bytes;
    int64_t size;
    usc_error err;
#define HALF                                                                             \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.bfloat16\", \"shape\": [2, 3]}"
    write_npy("a.npy", "<f4");
    write_dump(CALL("Functional.linear.0.forward", HALF "," FILED("a.npy"),
                    HALF) ", " CALL("Tensor.to.0.forward", TENSOR("") ", {}",
                                    HALF) ", " CALL("Functional.linear.1.forward",
                                                    TENSOR(""), TENSOR("")));
    usc_trace *t = imported();
    const usc_call linear = call_of(t, 1);
    assert_string_equal(linear.state, "{\"dumped\": \"Functional.linear.0\"}");
    const usc_call_arg *weight = arg_of(&linear, USC_ROLE_IN, "args[1]");
    assert_string_equal(weight->dtype_name, "bfloat16");
    assert_int_equal(usc_trace_blob(t, weight->blob, &bytes, &size, &err), USC_OK);
    const uint16_t values[6] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};
    assert_int_equal(size, sizeof values);
    assert_memory_equal(bytes, values, sizeof values);
    const usc_call cast = call_of(t, 2);
    assert_string_equal(arg_of(&cast, USC_ROLE_IN, "args[0]")->dtype_name, "float32");
    assert_non_null(strstr(cast.args, "{\"dtype\": \"bfloat16\"}"));
    assert_string_equal(call_of(t, 3).arg[0].dtype_name, "float32");
    usc_trace_close(t);
}

static void a_backward_pass_is_a_call_of_its_forward_call(void **state)
{
    (void)state;
#define BACKWARD(name, in, out, more)                                                    \
    ", \"" name ".backward\": {\"input\": [" in "], \"output\": [" out "]" more "}"
    const char *const wants = TENSOR(", \"requires_grad\": true");
    char text[4096];
    snprintf(text, sizeof text,
             CALL("Tensor.__mul__.0.forward", "%s, %s", TENSOR("")) ", " CALL(
                 "Torch.abs.0.forward", TENSOR(""), TENSOR("")) "%s",
             wants, wants,
             BACKWARD("Torch.abs.0", TENSOR(""), TENSOR(""), "") /* asks for none */
             BACKWARD("Torch.exp.0", TENSOR(""), TENSOR(""), "") /* of no call */
             BACKWARD("Tensor.__mul__.0", TENSOR(""), "null, " TENSOR(""), ""));
    write_dump(text);
    usc_trace *t = imported();
    assert_int_equal(counts.calls, 3);
    assert_int_equal(counts.others, 2);
    const usc_call back = call_of(t, 3);
    assert_string_equal(back.op, "torch.Tensor.mul");
    assert_string_equal(back.phase, "backward");
    assert_string_equal(back.state, "{\"forward\": 1, \"gradients\": \"node\", "
                                    "\"dumped\": \"Tensor.__mul__.0\"}");
    assert_int_equal(back.n_args, 2);
    assert_non_null(arg_of(&back, USC_ROLE_IN, "args[0]"));
    assert_non_null(arg_of(&back, USC_ROLE_OUT, "out[1]"));
    usc_trace_close(t);
    snprintf(text, sizeof text, CALL("Torch.abs.0.forward", "%s", TENSOR("")) "%s", wants,
             BACKWARD("Torch.abs.0", TENSOR(""), TENSOR(""),
                      ", \"gradients_of\": \"arguments\""));
    write_dump(text);
    t = imported();
    assert_string_equal(call_of(t, 2).state,
                        "{\"forward\": 1, \"dumped\": \"Torch.abs.0\"}");
    usc_trace_close(t);
}

static void places_come_from_the_other_two_files(void **state)
{
    (void)state;
    static const char stack[] =
        "{\"0\": [[\"Functional.linear.0.forward\", \"Torch.cat.0.forward\"], [\"File "
        "/t/a "
        "b.py, line 12, in forward, \\n y = f(x, line 3)\", \"odd\"]]}";
    static const char construct[] =
        "{\"Functional.linear.0.forward\": \"Module.layers.0.fc.Linear.forward.0\", "
        "\"Torch.cat.0.forward\": [\"optimizer\", 0], "
        "\"Module.layers.0.fc.Linear.forward.0\": "
        "null}";
    write_file("stack.json", stack, sizeof stack - 1);
    write_file("construct.json", construct, sizeof construct - 1);
    write_dump(CALL("Functional.linear.0.forward", TENSOR(""), TENSOR("")) ", " CALL(
        "Torch.cat.0.forward", TENSOR(""),
        TENSOR("")) ", \"Module.fc.Linear.forward.0\": {}, "
                    "\"Module.fc.Linear.parameters_grad.0\": "
                    "{}, \"x.0.debug\": {}");
    usc_trace *t = imported();
    const usc_call linear = call_of(t, 1);
    assert_string_equal(linear.module_path, "layers.0.fc");
    assert_string_equal(linear.module_class, "Linear");
    assert_string_equal(linear.frames,
                        "[[\"/t/a b.py\", 12, \"forward\"], [\"odd\", 0, \"\"]]");
    assert_string_equal(call_of(t, 2).phase, "optimizer");
    assert_int_equal(counts.calls, 2);
    assert_int_equal(counts.modules, 1);
    assert_int_equal(counts.others, 2);
    usc_trace_close(t);
}

static void statistics_say_that_there_was_a_nan_or_an_infinity(void **state)
{
    (void)state;
    write_dump(CALL(
        "Torch.abs.0.forward",
        "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float16\", \"shape\": [2], "
        "\"Max\": NaN, \"Min\": NaN, \"Mean\": NaN, \"Norm\": NaN}, {\"type\": "
        "\"torch.Tensor\", \"dtype\": \"torch.float16\", \"shape\": [2], \"Max\": 1, "
        "\"Min\": -Infinity, \"Mean\": -Infinity, \"Norm\": Infinity}, {\"type\": "
        "\"torch.Tensor\", \"dtype\": \"torch.bool\", \"shape\": [], \"Max\": true, "
        "\"Min\": false}, {\"type\": \"torch.Tensor\", \"dtype\": \"torch.int64\", "
        "\"shape\": [9], \"Max\": 9007199254740993, \"Min\": -4, \"Mean\": null, "
        "\"Norm\": null}",
        ""));
    usc_trace *t = imported();
    const usc_call call = call_of(t, 1);
    assert_non_null(strstr(arg_of(&call, USC_ROLE_IN, "args[0]")->stats, "\"n_nan\":1"));
    const char *inf = arg_of(&call, USC_ROLE_IN, "args[1]")->stats;
    assert_non_null(strstr(inf, "\"n_neg_inf\":1"));
    assert_non_null(strstr(inf, "\"min\":-1,\"max\":1"));
    assert_non_null(
        strstr(arg_of(&call, USC_ROLE_IN, "args[2]")->stats, "\"int_max\":1"));
    const char *whole = arg_of(&call, USC_ROLE_IN, "args[3]")->stats;
    assert_non_null(strstr(whole, "\"int_min\":-4,\"int_max\":9007199254740993"));
    usc_trace_close(t);
}

static void the_first_generation_has_stars_and_paths(void **state)
{
    (void)state;
    static const char forward[] = "{\n\"Functional*relu*0\": {\"args\": [{\"type\": "
                                  "\"torch.Tensor\", \"datapath\": "
                                  "\"/gone/../forward_real_data/x.npy\", "
                                  "\"requires_grad\": true}, {\"type\": \"bool\", "
                                  "\"value\": true}], \"kwargs\": {}}}";
    static const char stack[] =
        "{\"Functional*relu*0\": [\"File a.py, line 3, in f, \\n x\"]}";
    char path[1024];
    usc_error err;
    write_npy("x.npy", "<f4");
    write_file("forward_info_12.json", forward, sizeof forward - 1);
    write_file("stack_info_12.json", stack, sizeof stack - 1);
    assert_int_equal(import_as(false, NULL, &err), USC_E_NOT_FOUND); /* no such folder */
    char from[1024];
    snprintf(from, sizeof from, "%s/dump_tensor_data", dump);
    snprintf(path, sizeof path, "%s/forward_real_data", dump);
    assert_int_equal(rename(from, path), 0);
    usc_trace *t = imported();
    const usc_call call = call_of(t, 1);
    assert_string_equal(call.op, "torch.nn.functional.relu");
    assert_string_equal(call.frames, "[[\"a.py\", 3, \"f\"]]");
    assert_int_equal(arg_of(&call, USC_ROLE_IN, "args[0]")->sizes[1], 3);
    assert_true(arg_of(&call, USC_ROLE_IN, "args[0]")->requires_grad);
    usc_trace_close(t);
    write_file("forward_info_7.json", forward, sizeof forward - 1);
    assert_int_equal(import_as(false, NULL, &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "several processes"));
    assert_int_equal(import_as(false, "12", &err), USC_OK);
}

static void steps_are_one_trace_and_processes_are_not(void **state)
{
    (void)state;
    static const char *const parts[] = {"step10/rank0", "step2/rank0", "step2/rank1"};
    char path[1024], *own = strdup(dump);
    usc_error err;
    usc_trace *t;
    snprintf(path, sizeof path, "%s/dump.json", own);
    (void)unlink(path);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%.*s", own, (int)strcspn(parts[i], "/"),
                 parts[i]);
        (void)mkdir(path, 0777);
        snprintf(dump, sizeof dump, "%s/%s", own, parts[i]);
        assert_int_equal(mkdir(dump, 0777), 0);
        write_dump(CALL("Torch.abs.0.forward", TENSOR(""), ""));
    }
    snprintf(dump, sizeof dump, "%s", own);
    free(own);
    assert_int_equal(import_as(false, NULL, &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "(rank0, rank1, ...)"));
    assert_int_equal(import_as(false, "7", &err), USC_E_NOT_FOUND);
    assert_int_equal(import_as(false, "0", &err), USC_OK);
    assert_int_equal(counts.steps, 2);
    assert_int_equal(usc_trace_open(trace, NULL, &t, &err), USC_OK);
    assert_int_equal(call_of(t, 1).step, 2);
    assert_int_equal(call_of(t, 2).step, 10);
    usc_trace_close(t);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)
    const struct CMUnitTest tests[] = {
        TEST(arguments_of_every_kind_are_kept),
        TEST(content_is_that_of_the_file),
        TEST(what_a_call_wrote_stands_in_the_storage_of_its_argument),
        TEST(what_autocast_rounded_is_kept_as_it_ran),
        TEST(a_backward_pass_is_a_call_of_its_forward_call),
        TEST(places_come_from_the_other_two_files),
        TEST(statistics_say_that_there_was_a_nan_or_an_infinity),
        TEST(the_first_generation_has_stars_and_paths),
        TEST(steps_are_one_trace_and_processes_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
