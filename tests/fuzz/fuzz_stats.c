// SPDX-License-Identifier: Apache-2.0
// Statistics of a tensor as a trace keeps them, behind a line "dtype rows columns need":
// a stand-in is drawn from them, twice the same, and the flow of NaN and Inf reads them.
#include "fuzz.h"

#include <ulpscope/x/flow.h>
#include <ulpscope/x/generate.h>

enum { LONGEST = 48 };

static void make(const usc_tensor *like, const usc_stats *s, usc_need need)
{
    usc_error err;
    size_t size;
    const usc_stand_in_options o = {.need = need, .limit = s->n_zero};
    FUZZ_REQUIRE(usc_stand_in_size(like, &size, &err) == USC_OK);
    const usc_stream stream = usc_stand_in_stream(s, "trace", 1, "args[0]");
    unsigned char *one = malloc(size + 1), *other = malloc(size + 1);
    FUZZ_REQUIRE(one != NULL && other != NULL);
    const usc_status st = usc_stand_in_make(like, s, &o, stream, one, size, &err);
    fuzz_said(st, &err);
    FUZZ_REQUIRE(usc_stand_in_make(like, s, &o, stream, other, size, &err) == st);
    FUZZ_REQUIRE(st != USC_OK || memcmp(one, other, size) == 0);
    free(one);
    free(other);
}

static void stand_in(const char *form, const char *text)
{
    char dtype[16];
    unsigned rows, columns, need;
    usc_tensor like;
    usc_stats s;
    usc_error err;
    const usc_status st = usc_stats_from_json(text, &s, &err);
    fuzz_said(st, &err);
    if (st != USC_OK) return;
    if (sscanf(form, "%15s %4u %4u %4u", dtype, &rows, &columns, &need) != 4) return;
    const int64_t sizes[] = {rows % LONGEST, columns % LONGEST};
    if (usc_dtype_by_name(dtype) == USC_DTYPE_NONE) return;
    FUZZ_REQUIRE(usc_tensor_make(&like, NULL, usc_dtype_by_name(dtype), 2, sizes, &err) ==
                 USC_OK);
    make(&like, &s, (usc_need)(need % (USC_NEED_TRIANGULAR + 1)));
}

static void flow(const char *op, const char *text)
{
    usc_flow *flow = NULL;
    usc_error err;
    const usc_call_arg args[] = {
        {.role = USC_ROLE_IN, .path = "args[0]", .storage = 1, .stats = text},
        {.role = USC_ROLE_OUT, .path = "out[0]", .storage = 2, .stats = text}};
    FUZZ_REQUIRE(usc_flow_create(&flow, &err) == USC_OK);
    for (int i = 1; i <= 2; i++) { /* what comes out of one is the other's input */
        const usc_call call = {
            .sequence = i, .op = op, .args = text, .n_args = 2, .arg = args};
        usc_flow_event event;
        FUZZ_REQUIRE(usc_flow_call(flow, &call, &event, &err) == USC_OK);
        FUZZ_REQUIRE((event.kind == USC_FLOW_CLEAN) == (event.arg < 0));
        FUZZ_REQUIRE(event.arg < 2 && event.from < 2 && event.source <= i);
    }
    usc_flow_free(flow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 2);
    double value;
    FUZZ_REQUIRE(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    char *rest = text + strcspn(text, "\n");
    if (*rest != '\0') *rest++ = '\0';
    const usc_call_arg arg = {.stats = rest};
    (void)usc_call_arg_stat(&arg, "min", &value);
    FUZZ_REQUIRE(!usc_call_arg_stat(&arg, "no such", &value) || value == value);
    stand_in(text, rest);
    flow("aten::add.Tensor", rest);
    free(text);
    return 0;
}
