// SPDX-License-Identifier: Apache-2.0
// Opening what is asked of: files are attached as they lie; what another process writes,
// or a killed one left where nobody may mend it, is copied into memory.
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "query/query_inside.h"
#include "result/result_db.h"
#include "trace/trace_reader.h"

usc_status usc_query_error(usc_query *q, const char *doing, usc_error *err)
{
    const int code = sqlite3_errcode(q->handle) & 0xff;
    const usc_status st = code == SQLITE_NOMEM ? USC_E_NOMEM
                          : code == SQLITE_CORRUPT || code == SQLITE_NOTADB
                              ? USC_E_CORRUPT
                          : code == SQLITE_IOERR || code == SQLITE_FULL ? USC_E_IO
                                                                        : USC_E_ARG;
    return usc_error_set(err, st, -1, "%s%s%s", doing, *doing != '\0' ? ": " : "",
                         sqlite3_errmsg(q->handle));
}

usc_status usc_query_open(usc_query **out, usc_error *err)
{
    assert(out);
    *out = NULL;
    usc_query *q = calloc(1, sizeof *q);
    if (q == NULL ||
        sqlite3_open_v2(":memory:", &q->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI,
                        NULL) != SQLITE_OK) {
        usc_query_close(q);
        return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    }
    *out = q;
    return USC_OK;
}

void usc_query_close(usc_query *q)
{
    if (q == NULL) return;
    (void)sqlite3_close(q->handle);
    free(q);
}

const char *usc_query_lacks(const usc_query *q)
{
    return q->lacks[0] != '\0' ? q->lacks : NULL;
}

static bool holds(const char *folder, const char *file)
{
    char path[USC_PATH_SIZE];
    return usc_path_join(path, folder, file, NULL) == USC_OK && access(path, F_OK) == 0;
}

static usc_status attach_uri(usc_query *q, const char *uri, const char *name,
                             usc_error *err)
{
    char *sql = sqlite3_mprintf("ATTACH %Q AS %s", uri, name);
    if (sql == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    const int code = sqlite3_exec(q->handle, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    if (code == SQLITE_OK) return USC_OK;
    if (strstr(sqlite3_errmsg(q->handle), "too many") != NULL)
        return usc_error_set(err, USC_E_RANGE, -1,
                             "at most %d traces and results can be asked at a time; name "
                             "one rank, e.g. TRACE/rank-0",
                             sqlite3_limit(q->handle, SQLITE_LIMIT_ATTACHED, -1));
    return usc_query_error(q, "opening", err);
}

/* "file:" and a path in which no byte means anything to a URI. */
static void make_uri(const char *path, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "file:");
    for (; *path != '\0' && n + 32 < size; path++)
        n += (size_t)snprintf(out + n, size - n, strchr("%?#", *path) ? "%%%02x" : "%c",
                              (unsigned char)*path);
    (void)snprintf(out + n, size - n, "?mode=ro&immutable=1");
}

static usc_status copy_of(usc_query *q, sqlite3 *from, const char *name, usc_error *err)
{
    usc_status st = attach_uri(q, ":memory:", name, err);
    if (st != USC_OK) return st;
    sqlite3_backup *backup = sqlite3_backup_init(q->handle, name, from, "main");
    if (backup != NULL) (void)sqlite3_backup_step(backup, -1);
    return backup != NULL && sqlite3_backup_finish(backup) == SQLITE_OK
               ? USC_OK
               : usc_query_error(q, "copying", err);
}

/* The file of an open database where it is whole as it lies, else a copy. */
static usc_status attach(usc_query *q, usc_db *db, bool whole, const char *name,
                         usc_error *err)
{
    char uri[3 * USC_PATH_SIZE + 64];
    const char *file = sqlite3_db_filename(db->handle, "main");
    bool unfinished = true;
    if (whole && file != NULL && file[0] != '\0' &&
        usc_db_unfinished(db->path, &unfinished, NULL) != USC_OK)
        unfinished = true;
    if (unfinished) return copy_of(q, db->handle, name, err);
    make_uri(db->path, uri, sizeof uri);
    return attach_uri(q, uri, name, err);
}

static usc_status add_trace(usc_query *q, usc_query_member *m, const char *folder,
                            usc_error *err)
{
    char name[16];
    usc_trace *t = NULL;
    usc_status st = usc_trace_open(folder, NULL, &t, err);
    if (st != USC_OK) return st;
    (void)snprintf(name, sizeof name, "t%d", q->n_traces);
    st = attach(q, &t->db, true, name, err);
    usc_trace_close(t);
    if (st != USC_OK) return st;
    m->trace = q->n_traces++;
    (void)snprintf(m->trace_path, sizeof m->trace_path, "%s", folder);
    return USC_OK;
}

/* Whether a folder holds the trace with that id. */
static bool is_trace(const char *folder, const char *id)
{
    usc_trace *t = NULL;
    if (usc_trace_open(folder, NULL, &t, NULL) != USC_OK) return false;
    const char *own = usc_trace_meta(t, "id");
    const bool same = own != NULL && strcmp(own, id) == 0;
    usc_trace_close(t);
    return same;
}

/* The trace that results are of, where it still is in its place. */
static usc_status add_trace_of(usc_query *q, usc_query_member *m, usc_result *r,
                               usc_error *err)
{
    char path[USC_PATH_SIZE];
    const char *text = NULL;
    usc_status st = usc_result_find(r, "trace", &text, err);
    if (st != USC_OK) return st;
    (void)snprintf(path, sizeof path, "%s", text != NULL ? text : "");
    (void)snprintf(m->trace_path, sizeof m->trace_path, "%s", path);
    st = usc_result_find(r, "trace_id", &text, err);
    if (st != USC_OK) return st;
    if (text != NULL && holds(path, "trace.db") && is_trace(path, text))
        return add_trace(q, m, path, err);
    (void)snprintf(q->lacks, sizeof q->lacks, "%s", path);
    return USC_OK;
}

static usc_status add_results(usc_query *q, usc_query_member *m, const char *folder,
                              usc_error *err)
{
    char name[16];
    usc_result *r = NULL;
    usc_status st = usc_result_open(folder, &r, err);
    if (st != USC_OK) return st;
    (void)snprintf(name, sizeof name, "o%d", q->n_results);
    st = attach(q, &r->db, !usc_result_live(r), name, err);
    if (st == USC_OK) {
        m->results = q->n_results++;
        (void)snprintf(m->results_path, sizeof m->results_path, "%s", folder);
        st = add_trace_of(q, m, r, err);
    }
    usc_result_close(r);
    return st;
}

usc_status usc_query_add(usc_query *q, const char *folder, int64_t rank, usc_error *err)
{
    assert(q && folder && !q->made);
    q->lacks[0] = '\0';
    if (q->n == USC_QUERY_MOST)
        return usc_error_set(err, USC_E_RANGE, -1, "at most %d ranks", USC_QUERY_MOST);
    usc_query_member m = {.rank = rank, .trace = -1, .results = -1};
    usc_status st;
    if (holds(folder, "result.db"))
        st = add_results(q, &m, folder, err);
    else if (holds(folder, "trace.db"))
        st = add_trace(q, &m, folder, err);
    else
        return usc_error_set(
            err, USC_E_NOT_FOUND, -1, "%s: %s", folder,
            access(folder, F_OK) == 0
                ? "neither a trace nor results: no trace.db or result.db in it"
                : "no such folder");
    if (st == USC_OK) q->member[q->n++] = m;
    return st;
}
