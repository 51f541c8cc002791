// SPDX-License-Identifier: Apache-2.0
// What Python's json module writes beyond JSON. Neighbour: json_stream.c does the same of
// a file that does not fit.
#include <string.h>

#include "json/json.h"

static void put_sound(usc_line *out, const char *text, size_t n)
{
    static const char *const words[][2] = {
        {"-Infinity", "\"-inf\""}, {"Infinity", "\"inf\""}, {"NaN", "\"nan\""}};
    bool in_text = false;
    usc_line_clear(out);
    for (size_t i = 0; i < n; i++) {
        size_t taken = 0;
        for (size_t w = 0; !in_text && taken == 0 && w < 3; w++) {
            const size_t size = strlen(words[w][0]);
            if (n - i < size || memcmp(text + i, words[w][0], size) != 0) continue;
            usc_line_text(out, words[w][1]);
            taken = size;
        }
        if (taken > 0) {
            i += taken - 1;
            continue;
        }
        if (in_text && text[i] == '\\' && i + 1 < n)
            usc_line_put(out, text + i++, 1);
        else if (text[i] == '"')
            in_text = !in_text;
        usc_line_put(out, text + i, 1);
    }
}

usc_status usc_json_parse_python(usc_line *room, const char *text, size_t n,
                                 const char *name, const char *else_what, usc_json **out,
                                 usc_error *err)
{
    const bool special =
        memmem(text, n, "NaN", 3) != NULL || memmem(text, n, "Infinity", 8) != NULL;
    if (!special) return usc_json_parse(text, n, name, else_what, out, err);
    put_sound(room, text, n);
    if (room->failed) return usc_no_memory(name, err);
    return usc_json_parse(room->text, room->n, name, else_what, out, err);
}
