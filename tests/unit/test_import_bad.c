// SPDX-License-Identifier: Apache-2.0
// Dumps of msprobe that are no sound ones: refused, or what is damaged skipped; a trace
// that is there is kept.
#include "import_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <ulpscope/ulpscope.h>
#include <ulpscope/x/foreign.h>

#include "trace_sample.h"

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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_sound_dump_is_refused_and_leaves_nothing),
        TEST(damaged_files_can_be_skipped),
        TEST(a_cut_dump_is_noticed_before_anything_is_written),
        TEST(a_trace_that_is_there_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
