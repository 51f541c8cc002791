// SPDX-License-Identifier: Apache-2.0
// Words of `ulpscope show`: texts of a trace on a terminal, forms of tensors.
#include "show/show.h"

#include <string.h>

const char *show_text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* Names come from files: control characters, also those that UTF-8 spells C2 80 to C2 9F,
 * are no part of them. */
void show_plain_to(FILE *to, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        const bool high = *c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        fputc(*c < 0x20 || *c == 0x7f || high ? '?' : *c, to);
        c += high;
    }
}

void show_plain(const char *text)
{
    show_plain_to(stdout, text);
}

static const char *short_dtype(const char *name)
{
    static const char *const names[][2] = {
        {"float64", "f64"},   {"float32", "f32"}, {"float16", "f16"},
        {"bfloat16", "bf16"}, {"int64", "i64"},   {"int32", "i32"},
        {"int16", "i16"},     {"int8", "i8"},     {"uint8", "u8"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], name) == 0) return names[i][1];
    return name;
}

void show_shape(const usc_call_arg *arg)
{
    show_plain(short_dtype(show_text_of(arg->dtype_name)));
    putchar('[');
    for (int i = 0; i < arg->ndim; i++)
        (void)printf("%s%lld", i > 0 ? "," : "", (long long)arg->sizes[i]);
    putchar(']');
}
