// SPDX-License-Identifier: Apache-2.0
// A metric as MLflow keeps it, mlruns/EXPERIMENT/RUN/metrics/NAME: lines of milliseconds
// since 1970, the value, and the step. The file has no name for it but its own.
#include <string.h>

#include "loss/curve.h"

typedef struct entry {
    const char *text; /* of the value */
    size_t text_size;
    double value;
    int64_t step;
} entry;

static bool read_entry(const char *line, size_t n, entry *out)
{
    enum { DIGITS = 13 }; /* from 2001 to 2286 */
    const char *const end = line + n;
    if (n < DIGITS + 4 || line[DIGITS] != ' ') return false;
    for (int i = 0; i < DIGITS; i++)
        if (line[i] < '0' || line[i] > '9') return false;
    out->text = line + DIGITS + 1;
    const char *space = memchr(out->text, ' ', (size_t)(end - out->text));
    if (space == NULL) return false;
    out->text_size = (size_t)(space - out->text);
    return usc_curve_number(out->text, out->text_size, &out->value) &&
           usc_curve_step(space + 1, (size_t)(end - space - 1), &out->step);
}

bool usc_curve_is_metric(const char *data, size_t size)
{
    const char *at = data, *line;
    size_t n;
    entry e;
    return usc_curve_line(&at, data + size, &line, &n) && read_entry(line, n, &e);
}

static void each_entry(usc_curve_maker *m, const char *data, size_t size,
                       const char *offered)
{
    const char *at = data, *line;
    size_t n;
    entry e;
    while (m->status == USC_OK && usc_curve_line(&at, data + size, &line, &n)) {
        if (!read_entry(line, n, &e)) continue;
        if (offered != NULL) {
            usc_curve_offer(m, offered, strlen(offered), e.value);
            continue;
        }
        usc_curve_printed(m, e.text, e.text_size);
        usc_curve_add(m, e.step, e.value);
    }
}

void usc_curve_metric(usc_curve_maker *m, const char *data, size_t size)
{
    const char *slash = strrchr(m->name, '/');
    m->form = "metric of MLflow";
    each_entry(m, data, size, slash != NULL ? slash + 1 : m->name);
    usc_curve_choose(m);
    if (m->key == NULL) return;
    usc_curve_axis(m, "step", 4);
    each_entry(m, data, size, NULL);
}
