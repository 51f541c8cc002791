// SPDX-License-Identifier: Apache-2.0
// What trace and result databases share: opening, sealing into a plain file, prepared
// statements, and one sentence for each way in which SQLite can refuse.
#ifndef USC_DB_H
#define USC_DB_H

#include <sqlite3.h>
#include <ulpscope/alloc.h>
#include <ulpscope/status.h>

#include "base/arena.h"
#include "base/path.h"

#define USC_DB_MAX_STATEMENTS 32

/* What tells one kind of database from another, and from later versions of itself. */
typedef struct usc_db_kind {
    const char *noun;       /* "trace", "result" */
    int32_t application_id; /* PRAGMA application_id */
    int32_t version;        /* PRAGMA user_version: the newest that is understood */
    const char *schema;     /* SQL that makes the tables */
    const char *const *sql; /* statements, by the numbers that usc_db_get takes */
} usc_db_kind;

typedef struct usc_db {
    const usc_db_kind *kind;
    sqlite3 *handle;
    int64_t version; /* of the file; usc_db_create leaves it 0 */
    sqlite3_stmt *statement[USC_DB_MAX_STATEMENTS];
    char path[USC_PATH_SIZE];
} usc_db;

/** Creates the file with its tables, exclusively locked, in WAL mode. */
USC_NODISCARD usc_status usc_db_create(usc_db *db, const usc_db_kind *kind,
                                       const char *path, usc_error *err);

/** Opens for writing what exists, exclusively locked; recovers what a killed writer left.
 * Errors: USC_E_BUSY, USC_E_CORRUPT, USC_E_VERSION, USC_E_IO. */
USC_NODISCARD usc_status usc_db_open_writable(usc_db *db, const usc_db_kind *kind,
                                              const char *path, usc_error *err);

/** Opens a plain file for reading, as immutable: no lock, no second file.
 * journal_too: reads what a killed writer left in the journal as well, without writing
 * anything (for read-only media). */
USC_NODISCARD usc_status usc_db_open_readable(usc_db *db, const usc_db_kind *kind,
                                              const char *path, bool journal_too,
                                              usc_error *err);

/** Whether the last writer did not close it (or still writes): a journal lies beside it,
 * or its header says that one belongs to it. Errors: USC_E_NOT_FOUND, USC_E_IO,
 * USC_E_CORRUPT where this is no SQLite file. */
USC_NODISCARD usc_status usc_db_unfinished(const char *path, bool *out, usc_error *err);

/** Where the database may not be written, puts a copy of it in memory in its place, which
 * may; else does nothing. Statements that are prepared are lost. Errors: USC_E_NOMEM,
 * USC_E_CORRUPT, USC_E_IO. */
USC_NODISCARD usc_status usc_db_make_changeable(usc_db *db, usc_error *err);

/** Reads the whole of it: USC_E_CORRUPT where any part is damaged. */
USC_NODISCARD usc_status usc_db_check(usc_db *db, usc_error *err);

/** Turns a writable database into a plain file without a journal. */
USC_NODISCARD usc_status usc_db_make_plain(usc_db *db, usc_error *err);

/** Closes; a journal stays where usc_db_make_plain did not succeed. */
void usc_db_close(usc_db *db);

/** Runs statements that give no rows. `doing` is for the error: "begin". */
USC_NODISCARD usc_status usc_db_exec(usc_db *db, const char *sql, const char *doing,
                                     usc_error *err);

/** The prepared statement of kind->sql[i], reset, with nothing bound. */
USC_NODISCARD usc_status usc_db_get(usc_db *db, int i, sqlite3_stmt **out,
                                    usc_error *err);

/**
 * Binds values by `format` and runs statement `i` to its end: i int64, r int64 where 0
 * means NULL, d double, s text (NULL is SQL's NULL).
 */
USC_NODISCARD usc_status usc_db_put(usc_db *db, int i, usc_error *err, const char *format,
                                    ...);

/** Steps a query. *row is false at its end. */
USC_NODISCARD usc_status usc_db_step(usc_db *db, sqlite3_stmt *statement, bool *row,
                                     usc_error *err);

/** Copy of a text column; NULL for SQL's NULL and where there is no memory (a->failed).
 */
const char *usc_db_text(usc_arena *a, sqlite3_stmt *s, int column);

/** Sets `err` from what SQLite said last. */
usc_status usc_db_error(usc_db *db, const char *doing, usc_error *err);

#endif
