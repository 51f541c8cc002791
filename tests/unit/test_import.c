// SPDX-License-Identifier: Apache-2.0
// Dumps of msprobe become traces: what each part of a call becomes, and what is refused.
// Tensors lie in .npy files here; files of torch need a worker (tests/py/test_import.py).
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

static char *folder;
static char dump[700], trace[700];
static usc_import_counts counts;

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(dump, sizeof dump, "%s/dump", folder);
    snprintf(trace, sizeof trace, "%s/trace", folder);
    return mkdir(dump, 0777);
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dump, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* dump.json with these members of "data". */
static void write_dump(const char *data)
{
    char text[8192];
    const int n =
        snprintf(text, sizeof text,
                 "{\"task\": \"tensor\", \"level\": \"L1\", \"framework\": \"pytorch\", "
                 "\"dump_data_dir\": \"/elsewhere\", \"data\": {%s}}",
                 data);
    write_file("dump.json", text, (size_t)n);
}

/* float32 [2, 3] of 0, 1, .. in dump_tensor_data. */
static void write_npy(const char *name, const char *dtype)
{
    char path[1024], head[128], file[256];
    snprintf(path, sizeof path, "%s/dump_tensor_data", dump);
    (void)mkdir(path, 0777);
    const int n =
        snprintf(head, sizeof head,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3)}", dtype);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (char)n;
    file[9] = 0;
    memcpy(file + 10, head, (size_t)n);
    const float values[6] = {0, 1, 2, 3, 4, 5};
    memcpy(file + 10 + n, values, sizeof values);
    snprintf(path, sizeof path, "dump_tensor_data/%s", name);
    write_file(path, file, 10 + (size_t)n + sizeof values);
}

static usc_status import_as(bool skip_damaged, const char *rank, usc_error *err)
{
    usc_run_end end;
    char part[720];
    const usc_import_options o = {
        .dump = dump, .trace = trace, .rank = rank, .skip_damaged = skip_damaged};
    sample_remove(trace);
    const usc_status st = usc_import(&o, NULL, &counts, &end, err);
    snprintf(part, sizeof part, "%s.part", trace);
    assert_int_not_equal(access(part, F_OK), 0); /* nothing half is left */
    assert_int_equal(access(trace, F_OK) == 0, st == USC_OK);
    return st;
}

static usc_trace *imported(void)
{
    usc_error err;
    usc_trace *t;
    if (import_as(false, NULL, &err) != USC_OK) fail_msg("%s", err.text);
    if (usc_trace_open(trace, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    return t;
}

static usc_call call_of(usc_trace *t, int64_t sequence)
{
    usc_call call;
    usc_error err;
    if (usc_trace_read_call(t, sequence, &call, &err) != USC_OK) fail_msg("%s", err.text);
    return call;
}

static const usc_call_arg *arg_of(const usc_call *call, usc_role role, const char *path)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].role == role && strcmp(call->arg[i].path, path) == 0)
            return &call->arg[i];
    fail_msg("%s has no %s %s", call->op, usc_role_text(role), path);
    return NULL;
}

#define STATS "\"Max\": 2.5, \"Min\": -1, \"Mean\": 0.5, \"Norm\": 3"
#define TENSOR(more)                                                                     \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2, "         \
    "3], " STATS more "}"
#define FILED(name) TENSOR(", \"data_name\": \"" name "\"")
#define CALL(name, args, out)                                                            \
    "\"" name "\": {\"input_args\": [" args "], \"input_kwargs\": {}, \"output\": [" out \
    "]}"

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

static void what_is_no_sound_dump_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        usc_status status;
        const char *say;
    } bad[] = {
        {CALL("Torch.abs.0.forward", FILED("../secret.npy"), ""), USC_E_CORRUPT,
         "'../secret.npy' is no name of a file in"},
        {CALL("Torch.abs.0.forward", FILED("/etc/passwd"), ""), USC_E_CORRUPT,
         "a dump may only name its own files"},
        {CALL("Torch.abs.0.forward", FILED("none.npy"), ""), USC_E_NOT_FOUND,
         "dump.json: Torch.abs.0.forward: args[0]: "},
        {CALL("Torch.abs.0.forward", FILED("link.npy"), ""), USC_E_UNSUPPORTED,
         "is a link or no plain file"},
        {CALL("Torch.abs.0.forward", FILED("int.npy"), ""), USC_E_DTYPE,
         "the dump says float32, "},
        {CALL("Torch.abs.0.forward", FILED("cut.npy"), ""), USC_E_CORRUPT,
         "the file is cut off; --skip-damaged imports all that can be read"},
        {CALL("Torch.abs.0.forward", FILED("a.exe"), ""), USC_E_UNSUPPORTED,
         "is neither .npy nor .pt"},
        {CALL("Torch.abs.0.forward", FILED("a.pt"), ""), USC_E_UNSUPPORTED,
         "files of torch need a worker"},
        {CALL("Torch.abs.0.forward",
              "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [3, "
              "2], "
              "\"data_name\": \"a.npy\"}",
              ""),
         USC_E_SHAPE, "the dump says shape [3, 2], "},
        {CALL("Torch.abs.0.forward",
              "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": "
              "[4611686018427387904, 4]}",
              ""),
         USC_E_RANGE, "args[0]: "},
        {CALL("Torch.abs.0.forward",
              "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": "
              "[-1]}",
              ""),
         USC_E_SHAPE, "'shape' has no size at 0"},
        {CALL("Torch.abs.0.forward", "{\"type\": \"torch.Tensor\", \"shape\": [1]}", ""),
         USC_E_CORRUPT, "a tensor without 'dtype'"},
        {CALL("Torch.abs.0.forward", "", "") ", " CALL("Torch.abs.0.forward", "", ""),
         USC_E_CORRUPT, "stands twice"},
        {"\"Torch.abs.0.forward\": {\"output\": []}", USC_E_CORRUPT,
         "'input_args' is no list"},
        {"\"Torch.abs.0.forward\": 7", USC_E_CORRUPT, "is no object"},
        {"\"Module.fc.Linear.forward.0\": {}", USC_E_NOT_FOUND,
         "dump at level L1 or mix"},
        {"", USC_E_NOT_FOUND, "no call of an API in it"},
    };
    char path[1024], target[1024];
    write_npy("a.npy", "<f4");
    write_npy("int.npy", "<i4");
    write_npy("cut.npy", "<f4");
    write_npy("a.pt", "<f4");
    write_npy("a.exe", "<f4");
    snprintf(path, sizeof path, "%s/dump_tensor_data/cut.npy", dump);
    assert_int_equal(truncate(path, 80), 0);
    snprintf(target, sizeof target, "%s/dump_tensor_data/a.npy", dump);
    snprintf(path, sizeof path, "%s/dump_tensor_data/link.npy", dump);
    (void)symlink(target, path);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_error err;
        write_dump(bad[i].data);
        const usc_status st = import_as(false, NULL, &err);
        if (st != bad[i].status || strstr(err.text, bad[i].say) == NULL)
            fail_msg("%s: %s, %s", bad[i].data, usc_status_name(st),
                     st == USC_OK ? "" : err.text);
    }
}

static void damaged_files_can_be_skipped(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    write_npy("a.npy", "<f4");
    write_dump(CALL("Torch.abs.0.forward", FILED("none.npy"), FILED("a.npy")));
    assert_int_equal(import_as(true, NULL, &err), USC_OK);
    assert_int_equal(counts.damaged, 1);
    assert_non_null(strstr(counts.first_damage, "none.npy"));
    assert_int_equal(usc_trace_open(trace, NULL, &t, &err), USC_OK);
    const usc_call call = call_of(t, 1);
    const usc_call_arg *in = arg_of(&call, USC_ROLE_IN, "args[0]");
    assert_int_equal(in->blob, 0);
    assert_non_null(strstr(in->stats, "\"max\":2.5"));
    assert_int_not_equal(arg_of(&call, USC_ROLE_OUT, "out[0]")->blob, 0);
    usc_trace_close(t);
}

static void a_cut_dump_is_noticed_before_anything_is_written(void **state)
{
    (void)state;
    static const char cut[] = "{\"data\": {\"Torch.abs.0.forward\": {\"input_args\": [";
    usc_error err;
    write_file("dump.json", cut, sizeof cut - 1);
    assert_int_equal(import_as(false, NULL, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "inside 'Torch.abs.0.forward': it was cut off"));
    write_file("dump.json", "{\"task\": 1}", 11);
    assert_int_equal(import_as(false, NULL, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "no member 'data'"));
    write_file("dump.json", "{\"framework\": \"mindspore\", \"data\": {}}", 38);
    assert_int_equal(import_as(false, NULL, &err), USC_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "a dump of mindspore"));
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

static void a_trace_that_is_there_is_kept(void **state)
{
    (void)state;
    usc_error err;
    usc_run_end end;
    const usc_import_options o = {.dump = dump, .trace = folder};
    write_dump(CALL("Torch.abs.0.forward", TENSOR(""), ""));
    assert_int_equal(usc_import(&o, NULL, &counts, &end, &err), USC_E_EXISTS);
    assert_non_null(strstr(err.text, "is there already"));
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
        TEST(what_is_no_sound_dump_is_refused_and_leaves_nothing),
        TEST(damaged_files_can_be_skipped),
        TEST(a_cut_dump_is_noticed_before_anything_is_written),
        TEST(the_first_generation_has_stars_and_paths),
        TEST(a_trace_that_is_there_is_kept),
        TEST(steps_are_one_trace_and_processes_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
