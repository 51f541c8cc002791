// SPDX-License-Identifier: Apache-2.0
// Files of NumPy: what is read, and that nothing is read that is not so.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <ulpscope/x/npy.h>

#include "trace_sample.h"

/* A file of version 1 with this dict and `n` bytes of data; its size. */
static int64_t make(unsigned char *out, const char *dict, int64_t n)
{
    const size_t length = strlen(dict);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)(length & 255);
    out[9] = (unsigned char)(length >> 8);
    memcpy(out + 10, dict, length);
    for (int64_t i = 0; i < n; i++)
        out[10 + (int64_t)length + i] = (unsigned char)i;
    return 10 + (int64_t)length + n;
}

static usc_status read_it(const char *dict, int64_t n, usc_npy_header *h, usc_error *err)
{
    unsigned char bytes[1024];
    const int64_t size = make(bytes, dict, n);
    return usc_npy_read(bytes, size, size, "x.npy", h, err);
}

static void shape_dtype_and_order_are_read(void **state)
{
    (void)state;
    usc_npy_header h;
    usc_error err;
    assert_int_equal(
        read_it("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24, &h,
                &err),
        USC_OK);
    assert_string_equal(h.dtype_name, "float32");
    assert_int_equal(h.tensor.dtype, USC_F32);
    assert_int_equal(h.tensor.ndim, 2);
    assert_int_equal(h.tensor.strides[0], 3);
    assert_int_equal(h.tensor.strides[1], 1);
    assert_int_equal(h.n, 6);
    assert_int_equal(
        read_it("{\"shape\":(2,3),'fortran_order':True,'descr':'|i1'}", 6, &h, &err),
        USC_OK);
    assert_int_equal(h.tensor.strides[0], 1);
    assert_int_equal(h.tensor.strides[1], 2);
    assert_int_equal(
        read_it("{'descr': '<c16', 'fortran_order': False, 'shape': ()}", 16, &h, &err),
        USC_OK);
    assert_string_equal(h.dtype_name, "complex128");
    assert_int_equal(h.tensor.dtype, USC_DTYPE_NONE);
    assert_int_equal(h.n, 1);
    assert_int_equal(
        read_it("{'descr': '|b1', 'fortran_order': False, 'shape': (4, 0)}", 0, &h, &err),
        USC_OK);
    assert_int_equal(h.n, 0);
}

static void what_is_no_array_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *dict;
        int64_t n;
        usc_status status;
        const char *say;
    } bad[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 23, USC_E_CORRUPT,
         "23 bytes of data for 6 elements of float32: the file is cut off"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, USC_E_UNSUPPORTED,
         "runs code from the file and is never done"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, USC_E_UNSUPPORTED,
         "big-endian"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4,
         USC_E_UNSUPPORTED, "records"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", 12, USC_E_UNSUPPORTED,
         "'<U3'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, USC_E_CORRUPT,
         "no size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9)}", 4,
         USC_E_RANGE, "more elements than 64 bits count"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 0)}", 4,
         USC_E_RANGE, "more elements than 64 bits count"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4,
         USC_E_CORRUPT, "no size"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", 4, USC_E_CORRUPT,
         "neither True nor False"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", 4, USC_E_CORRUPT, "twice"},
        {"{'descr': '<f4', 'shape': (1,)}", 4, USC_E_CORRUPT, "is missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, USC_E_CORRUPT,
         "goes on"},
        {"[1]", 4, USC_E_CORRUPT, "no dict"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_npy_header h;
        usc_error err;
        if (read_it(bad[i].dict, bad[i].n, &h, &err) != bad[i].status ||
            strstr(err.text, bad[i].say) == NULL || strncmp(err.text, "x.npy: ", 7) != 0)
            fail_msg("%s: %s", bad[i].dict, err.text);
        assert_int_equal(h.n, 0);
    }
}

static void a_header_is_believed_no_further_than_the_file_goes(void **state)
{
    (void)state;
    unsigned char bytes[256];
    usc_npy_header h;
    usc_error err;
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    const int64_t size = make(bytes, dict, 4);
    for (int64_t n = 0; n < size; n++)
        assert_int_not_equal(usc_npy_read(bytes, n, n, "x", &h, &err), USC_OK);
    bytes[9] = 255; /* a header of 65 KiB */
    assert_int_equal(usc_npy_read(bytes, size, size, "x", &h, &err), USC_E_CORRUPT);
    bytes[6] = 3; /* version 3 has four bytes of length: gigabytes */
    assert_int_equal(usc_npy_read(bytes, size, size, "x", &h, &err), USC_E_CORRUPT);
    bytes[6] = 4;
    assert_int_equal(usc_npy_read(bytes, size, size, "x", &h, &err), USC_E_CORRUPT);
    char axes[200] = "{'descr': '|i1', 'fortran_order': False, 'shape': (";
    for (int i = 0; i < 33; i++)
        strcat(axes, "1,");
    strcat(axes, ")}");
    assert_int_equal(read_it(axes, 1, &h, &err), USC_E_SHAPE);
}

static void a_file_is_mapped_and_given_back(void **state)
{
    (void)state;
    char *folder = sample_folder(), path[600];
    unsigned char bytes[256];
    usc_npy npy;
    usc_error err;
    snprintf(path, sizeof path, "%s/a.npy", folder);
    const int64_t size =
        make(bytes, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", 4);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)size, f), (size_t)size);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(usc_npy_open(path, &npy, &err), USC_OK);
    assert_memory_equal(npy.header.tensor.data, "\0\1\2\3", 4);
    assert_true(npy.header.first % 2 == 1 && (uintptr_t)npy.header.tensor.data % 2 == 0);
    usc_npy_close(&npy);
    usc_npy_close(&npy);
    f = fopen(path, "wb");
    assert_int_equal(fclose(f), 0);
    assert_int_equal(usc_npy_open(path, &npy, &err), USC_E_CORRUPT); /* empty */
    assert_int_equal(usc_npy_open(folder, &npy, &err), USC_E_IO);
    snprintf(path, sizeof path, "%s/none.npy", folder);
    assert_int_equal(usc_npy_open(path, &npy, &err), USC_E_NOT_FOUND);
    sample_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_dtype_and_order_are_read),
        cmocka_unit_test(what_is_no_array_is_refused_with_a_sentence),
        cmocka_unit_test(a_header_is_believed_no_further_than_the_file_goes),
        cmocka_unit_test(a_file_is_mapped_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
