// SPDX-License-Identifier: Apache-2.0
// SQLite under the trace and the result database. Written in WAL mode with an exclusive
// lock (no shared memory file, so network file systems serve), read as an immutable file.
#include "db/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- errors ---- */

static usc_status status_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return USC_E_NOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return USC_E_BUSY;
    case SQLITE_CONSTRAINT:
        return USC_E_ARG;
    case SQLITE_TOOBIG:
        return USC_E_RANGE;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return USC_E_IO;
    default:
        return USC_E_CORRUPT;
    }
}

usc_status usc_db_error(usc_db *db, const char *doing, usc_error *err)
{
    const int code =
        db->handle != NULL ? sqlite3_extended_errcode(db->handle) : SQLITE_NOMEM;
    const usc_status st = status_of(code);
    if (st == USC_E_NOMEM) /* SQLite's text may say what it wanted memory for */
        return usc_error_set(err, st, -1, "%s: %s: no memory", db->path, doing);
    /* A read past the end of the file is damage, not the operating system's doing. */
    if (code == SQLITE_IOERR_SHORT_READ)
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s: the file ends too early",
                             db->path, doing);
    if (st == USC_E_BUSY)
        return usc_error_set(err, st, -1, "%s: in use by another process", db->path);
    const int os = st == USC_E_IO ? sqlite3_system_errno(db->handle) : 0;
    return usc_error_set(err, st, -1, "%s: %s: %s%s%s", db->path, doing,
                         sqlite3_errmsg(db->handle), os != 0 ? ": " : "",
                         os != 0 ? strerror(os) : "");
}

/* ---- statements ---- */

usc_status usc_db_exec(usc_db *db, const char *sql, const char *doing, usc_error *err)
{
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK) return USC_OK;
    return usc_db_error(db, doing, err);
}

usc_status usc_db_get(usc_db *db, int i, sqlite3_stmt **out, usc_error *err)
{
    *out = NULL;
    if (db->statement[i] == NULL &&
        sqlite3_prepare_v3(db->handle, db->kind->sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                           &db->statement[i], NULL) != SQLITE_OK)
        return usc_db_error(db, "its tables are not as expected", err);
    *out = db->statement[i];
    sqlite3_reset(*out); /* repeats an old failure, which was reported then */
    sqlite3_clear_bindings(*out);
    return USC_OK;
}

static int bind_one(sqlite3_stmt *s, int at, char kind, va_list *values)
{
    if (kind == 's') {
        const char *text = va_arg(*values, const char *);
        return sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
    }
    if (kind == 'd') return sqlite3_bind_double(s, at, va_arg(*values, double));
    const int64_t value = va_arg(*values, int64_t);
    if (kind == 'r' && value == 0) return sqlite3_bind_null(s, at);
    return sqlite3_bind_int64(s, at, value);
}

usc_status usc_db_put(usc_db *db, int i, usc_error *err, const char *format, ...)
{
    sqlite3_stmt *s;
    usc_status st = usc_db_get(db, i, &s, err);
    if (st != USC_OK) return st;
    va_list values;
    va_start(values, format);
    int code = SQLITE_OK;
    for (int at = 0; format[at] != '\0' && code == SQLITE_OK; at++)
        code = bind_one(s, at + 1, format[at], &values);
    va_end(values);
    if (code == SQLITE_OK) {
        do
            code = sqlite3_step(s);
        while (code == SQLITE_ROW);
    }
    st = code == SQLITE_DONE ? USC_OK : usc_db_error(db, "writing a row", err);
    sqlite3_reset(s);
    return st;
}

usc_status usc_db_step(usc_db *db, sqlite3_stmt *statement, bool *row, usc_error *err)
{
    const int code = sqlite3_step(statement);
    *row = code == SQLITE_ROW;
    if (code == SQLITE_ROW || code == SQLITE_DONE) return USC_OK;
    return usc_db_error(db, "reading", err);
}

const char *usc_db_text(usc_arena *a, sqlite3_stmt *s, int column)
{
    if (sqlite3_column_type(s, column) == SQLITE_NULL) return NULL;
    const unsigned char *text = sqlite3_column_text(s, column);
    if (text == NULL) {
        a->failed = true;
        return NULL;
    }
    const size_t n = (size_t)sqlite3_column_bytes(s, column);
    char *copy = usc_arena_take(a, n + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

/* ---- opening ---- */

static usc_status open_handle(usc_db *db, const usc_db_kind *kind, const char *name,
                              int flags, usc_error *err)
{
    const int code =
        sqlite3_open_v2(name, &db->handle, flags | SQLITE_OPEN_NOMUTEX, NULL);
    db->kind = kind;
    if (db->handle != NULL) /* SQLITE_OPEN_EXRESCODE came with 3.37 */
        (void)sqlite3_extended_result_codes(db->handle, 1);
    if (code != SQLITE_OK) return usc_db_error(db, "opening", err);
    sqlite3_busy_timeout(db->handle, 0);
    /* The file may come from anywhere: nothing in it gets to run. */
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return USC_OK;
}

static usc_status pragma_int(usc_db *db, const char *sql, int64_t *out, usc_error *err)
{
    sqlite3_stmt *s = NULL;
    bool row = false;
    *out = 0;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL) != SQLITE_OK)
        return usc_db_error(db, "reading", err);
    const usc_status st = usc_db_step(db, s, &row, err);
    if (row) *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return st;
}

static usc_status check_kind(usc_db *db, usc_error *err)
{
    int64_t id = 0, version = 0;
    usc_status st = pragma_int(db, "PRAGMA application_id", &id, err);
    if (st == USC_OK) st = pragma_int(db, "PRAGMA user_version", &version, err);
    if (st != USC_OK) return st;
    db->version = version;
    if (id != db->kind->application_id)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s: a database, but not a %s of ulpscope", db->path,
                             db->kind->noun);
    if (version > db->kind->version)
        return usc_error_set(err, USC_E_VERSION, -1,
                             "%s: written in %s format %lld; this program knows up to %d",
                             db->path, db->kind->noun, (long long)version,
                             (int)db->kind->version);
    if (version < 1)
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: impossible %s format %lld",
                             db->path, db->kind->noun, (long long)version);
    return USC_OK;
}

static void db_begin(usc_db *db, const char *path)
{
    *db = (usc_db){0};
    snprintf(db->path, sizeof db->path, "%s", path);
}

/* WAL with synchronous=NORMAL: a commit is one write, no waiting for the disk. A killed
 * process loses nothing committed; power loss may take the last commits, whole ones. */
static const char writing_mode[] = "PRAGMA journal_mode=WAL;"
                                   "PRAGMA synchronous=NORMAL;"
                                   "PRAGMA wal_autocheckpoint=4096;"
                                   "PRAGMA temp_store=MEMORY;";

usc_status usc_db_create(usc_db *db, const usc_db_kind *kind, const char *path,
                         usc_error *err)
{
    char head[96];
    db_begin(db, path);
    snprintf(head, sizeof head, "PRAGMA application_id=%d; PRAGMA user_version=%d;",
             (int)kind->application_id, (int)kind->version);
    usc_status st =
        open_handle(db, kind, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    /* Nobody is to read that it is no database of ours, yet. */
    if (st == USC_OK)
        st = usc_db_exec(db, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE;",
                         "creating", err);
    if (st == USC_OK) st = usc_db_exec(db, head, "creating", err);
    if (st == USC_OK) st = usc_db_exec(db, kind->schema, "creating", err);
    /* Committed before WAL begins: the file itself says from then on what it is. */
    if (st == USC_OK) st = usc_db_exec(db, "COMMIT", "creating", err);
    if (st == USC_OK) st = usc_db_exec(db, writing_mode, "creating", err);
    if (st != USC_OK) usc_db_close(db);
    return st;
}

usc_status usc_db_open_writable(usc_db *db, const usc_db_kind *kind, const char *path,
                                usc_error *err)
{
    db_begin(db, path);
    usc_status st = open_handle(db, kind, path, SQLITE_OPEN_READWRITE, err);
    if (st == USC_OK)
        st = usc_db_exec(db, "PRAGMA locking_mode=EXCLUSIVE", "opening", err);
    if (st == USC_OK) st = check_kind(db, err);
    if (st == USC_OK && sqlite3_db_readonly(db->handle, "main") == 1)
        st = usc_error_set(err, USC_E_IO, -1, "%s: no permission to write", path);
    if (st == USC_OK) st = usc_db_exec(db, writing_mode, "opening", err);
    if (st == USC_OK) st = usc_db_exec(db, "BEGIN IMMEDIATE; COMMIT", "opening", err);
    if (st != USC_OK) usc_db_close(db);
    return st;
}

/* file:PATH?OPTIONS with the three characters escaped that mean something in a URI. */
static usc_status make_uri(char *out, size_t size, const char *path, const char *options,
                           usc_error *err)
{
    size_t n = (size_t)snprintf(out, size, "file:");
    for (const char *p = path; *p != '\0' && n + 4 < size; p++) {
        if (strchr("?#%", *p) != NULL)
            n += (size_t)snprintf(out + n, size - n, "%%%02X", (unsigned char)*p);
        else
            out[n++] = *p;
    }
    if (n + strlen(options) + 4 >= size)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", path);
    memcpy(out + n, options, strlen(options) + 1);
    return USC_OK;
}

usc_status usc_db_open_readable(usc_db *db, const usc_db_kind *kind, const char *path,
                                bool journal_too, usc_error *err)
{
    char uri[USC_PATH_SIZE + 64];
    db_begin(db, path);
    /* Without locks and with the index of the journal in memory, SQLite recovers for
     * itself alone what it may not write back. */
    const char *options = journal_too ? "?mode=ro&vfs=unix-none" : "?mode=ro&immutable=1";
    usc_status st = make_uri(uri, sizeof uri, path, options, err);
    if (st == USC_OK)
        st = open_handle(db, kind, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, err);
    if (st == USC_OK && journal_too)
        st = usc_db_exec(db, "PRAGMA locking_mode=EXCLUSIVE", "opening", err);
    if (st == USC_OK)
        st = usc_db_exec(db, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0", "opening",
                         err);
    if (st == USC_OK) st = check_kind(db, err);
    if (st != USC_OK) usc_db_close(db);
    return st;
}

/* Opens the file itself only where no journal lies beside it: closing a second
 * descriptor would drop the locks of a writer in this process. */
usc_status usc_db_unfinished(const char *path, bool *out, usc_error *err)
{
    char journal[USC_PATH_SIZE + 8];
    unsigned char head[20];
    struct stat info;
    *out = false;
    if (stat(path, &info) != 0)
        return usc_error_set(
            err, errno == ENOENT || errno == ENOTDIR ? USC_E_NOT_FOUND : USC_E_IO, -1,
            "%s: %s", path, strerror(errno));
    const char *const suffix[] = {"-wal", "-journal"};
    for (int i = 0; i < 2; i++) {
        snprintf(journal, sizeof journal, "%s%s", path, suffix[i]);
        if (access(journal, F_OK) == 0) *out = true;
    }
    if (*out) return USC_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
    const ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    if (n != (ssize_t)sizeof head || memcmp(head, "SQLite format 3", 16) != 0)
        return usc_error_set(err, USC_E_CORRUPT, 0, "%s: not a SQLite database", path);
    *out = head[18] == 2 || head[19] == 2;
    return USC_OK;
}

usc_status usc_db_check(usc_db *db, usc_error *err)
{
    sqlite3_stmt *s = NULL;
    const int code =
        sqlite3_prepare_v2(db->handle, "PRAGMA quick_check(1)", -1, &s, NULL);
    const bool row = code == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW;
    const char *said = row ? (const char *)sqlite3_column_text(s, 0) : NULL;
    usc_status st = USC_OK;
    if (said == NULL)
        st = usc_db_error(db, "reading", err);
    else if (strcmp(said, "ok") != 0)
        st = usc_error_set(err, USC_E_CORRUPT, -1, "%s: the database is damaged",
                           sqlite3_db_filename(db->handle, "main"));
    sqlite3_finalize(s);
    return st;
}

usc_status usc_db_make_plain(usc_db *db, usc_error *err)
{
    for (int i = 0; i < USC_DB_MAX_STATEMENTS; i++)
        if (db->statement[i] != NULL) sqlite3_reset(db->statement[i]);
    return usc_db_exec(db,
                       "PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE);"
                       "PRAGMA journal_mode=DELETE",
                       "closing", err);
}

static void drop_statements(usc_db *db)
{
    for (int i = 0; i < USC_DB_MAX_STATEMENTS; i++) {
        sqlite3_finalize(db->statement[i]);
        db->statement[i] = NULL;
    }
}

usc_status usc_db_make_changeable(usc_db *db, usc_error *err)
{
    if (sqlite3_db_readonly(db->handle, "main") != 1) return USC_OK;
    usc_db copy = *db;
    memset(copy.statement, 0, sizeof copy.statement);
    usc_status st = open_handle(
        &copy, db->kind, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    drop_statements(db);
    sqlite3_backup *b = NULL;
    if (st == USC_OK) {
        b = sqlite3_backup_init(copy.handle, "main", db->handle, "main");
        if (b != NULL) (void)sqlite3_backup_step(b, -1);
        if (b == NULL || sqlite3_backup_finish(b) != SQLITE_OK)
            st = usc_db_error(&copy, "copying it to memory", err);
    }
    sqlite3_close(st == USC_OK ? db->handle : copy.handle);
    if (st == USC_OK) db->handle = copy.handle;
    return st;
}

void usc_db_close(usc_db *db)
{
    drop_statements(db);
    sqlite3_close(db->handle);
    db->handle = NULL;
}
