// SPDX-License-Identifier: Apache-2.0
// Rows of a trace. The input changes cells of a sound one: lines "TABLE COLUMN VALUE",
// where a value in digits is a number, "-" is NULL and anything else text. All calls are
// then read.
#include "fuzz.h"

#include <sqlite3.h>

#include "trace_sample.h"

enum { N_CALLS = 5 };

static void change(sqlite3 *db, char *line)
{
    char sql[256];
    sqlite3_stmt *s;
    char *table = strtok(line, " "), *column = strtok(NULL, " "),
         *value = strtok(NULL, "");
    if (table == NULL || column == NULL || strpbrk(table, "\";") ||
        strpbrk(column, "\";"))
        return;
    snprintf(sql, sizeof sql, "UPDATE \"%.80s\" SET \"%.80s\" = ?1", table, column);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) return;
    if (value != NULL && strcmp(value, "-") == 0)
        sqlite3_bind_null(s, 1);
    else if (value != NULL && value[0] != '\0' &&
             value[strspn(value, "-0123456789")] == '\0')
        sqlite3_bind_int64(s, 1, strtoll(value, NULL, 10));
    else
        sqlite3_bind_text(s, 1, value != NULL ? value : "", -1, SQLITE_STATIC);
    (void)sqlite3_step(s);
    (void)sqlite3_finalize(s);
}

static void change_all(const char *path, char *text)
{
    char file[640], *rest = text;
    sqlite3 *db;
    snprintf(file, sizeof file, "%s/trace.db", path);
    FUZZ_REQUIRE(sqlite3_open(file, &db) == SQLITE_OK);
    (void)sqlite3_exec(db, "PRAGMA synchronous=OFF", NULL, NULL, NULL);
    while (rest != NULL) {
        char *line = rest;
        rest = strchr(rest, '\n');
        if (rest != NULL) *rest++ = '\0';
        change(db, line);
    }
    FUZZ_REQUIRE(sqlite3_close(db) == SQLITE_OK);
}

static void read_all(usc_trace *t)
{
    const int64_t *calls;
    int64_t n, kept[64];
    usc_error err;
    usc_status st = usc_trace_select(t, NULL, &calls, &n, &err);
    fuzz_said(st, &err);
    if (st != USC_OK) return;
    n = n < 64 ? n : 64;
    if (n > 0) memcpy(kept, calls, (size_t)n * sizeof *kept);
    for (int64_t i = 0; i < n; i++) {
        usc_call call;
        int64_t blobs[64];
        st = usc_trace_read_call(t, kept[i], &call, &err);
        fuzz_said(st, &err);
        const int n_blobs = st != USC_OK ? 0 : call.n_args < 64 ? call.n_args : 64;
        for (int k = 0; k < n_blobs; k++)
            blobs[k] = call.arg[k].blob;
        for (int k = 0; k < n_blobs; k++) {
            const void *data;
            int64_t size;
            volatile uint8_t last = 0;
            st = usc_trace_blob(t, blobs[k], &data, &size, &err);
            fuzz_said(st, &err);
            if (st == USC_OK && size > 0) last = ((const uint8_t *)data)[size - 1];
            (void)last;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[600];
    usc_trace *t;
    usc_error err;
    char *text = malloc(size + 1);
    FUZZ_REQUIRE(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    snprintf(path, sizeof path, "%s/trace", fuzz_folder());
    FUZZ_REQUIRE(sample_write(path, NULL, N_CALLS, &err) == USC_OK);
    change_all(path, text);
    const usc_status st = usc_trace_open(path, NULL, &t, &err);
    fuzz_said(st, &err);
    if (st == USC_OK) read_all(t);
    usc_trace_close(t);
    sample_remove(path);
    free(text);
    return 0;
}
