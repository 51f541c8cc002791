// SPDX-License-Identifier: Apache-2.0
// Texts of the status list and the one function that fills an error.
#include <ulpscope/status.h>

#include <stdarg.h>
#include <stdio.h>

#include "base/number.h"

static const struct {
    const char *name;
    const char *text;
} rows[] = {
#define ROW(id, value, text) [value] = {#id, text},
    USC_STATUS_LIST(ROW)
#undef ROW
};

static bool is_listed(usc_status status)
{
    const size_t n_rows = sizeof rows / sizeof rows[0];
    return (int)status >= 0 && (size_t)status < n_rows && rows[status].name != NULL;
}

const char *usc_status_text(usc_status status)
{
    return is_listed(status) ? rows[status].text : "unknown status";
}

const char *usc_status_name(usc_status status)
{
    return is_listed(status) ? rows[status].name : "E_UNKNOWN";
}

const char *usc_status_advice(usc_status status)
{
    if (status == USC_E_VERSION) return "; a newer ulpscope is needed";
    if (status == USC_E_CORRUPT) return "; it is damaged, capture it or copy it again";
    return "";
}

usc_status usc_error_set(usc_error *err, usc_status status, int64_t where,
                         const char *format, ...)
{
    if (err == NULL) return status;
    err->status = status;
    err->where = where;
    va_list args;
    va_start(args, format);
    if (usc_format_list(err->text, sizeof err->text, format, args) < 0)
        err->text[0] = '\0';
    va_end(args);
    return status;
}
