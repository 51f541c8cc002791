// SPDX-License-Identifier: Apache-2.0
// Inside of a result database, shared by its files.
#ifndef USC_RESULT_DB_H
#define USC_RESULT_DB_H

#include <ulpscope/result.h>

#include "base/arena.h"
#include "db/db.h"
#include "result/result_reader.h"

#define USC_VERDICT_COLUMNS                                                              \
    "call, step, phase, op, culprit, module, module_class, verdict, bits, "              \
    "yardstick_bits, bound, cause, sentence, notes, output, args, stack, n_elements, "   \
    "stands_for, t_device, t_reference, t_perturbed, t_judge, t_total"

/* Rows that stand: not those whose cause was still sought when their run was cut short.
 */
#define USC_STANDING                                                                     \
    " WHERE call NOT IN (SELECT call FROM metric WHERE name = '" USC_METRIC_SEARCHING    \
    "') "

/* id, SQL */
#define USC_RESULT_SQL_LIST(X)                                                           \
    X(SET_RUN, "INSERT OR REPLACE INTO run VALUES (?1, ?2)")                             \
    X(GET_RUN, "SELECT value FROM run WHERE key = ?1")                                   \
    X(EACH_RUN, "SELECT key, value FROM run")                                            \
    X(PUT_VERDICT,                                                                       \
      "INSERT OR REPLACE INTO verdict(" USC_VERDICT_COLUMNS ") VALUES (?1, ?2, ?3, ?4, " \
      "?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, " \
      "?22, ?23, ?24)")                                                                  \
    X(CLEAR_METRICS, "DELETE FROM metric WHERE call = ?1")                               \
    X(SETTLE,                                                                            \
      "DELETE FROM metric WHERE call = ?1 AND name = '" USC_METRIC_SEARCHING "'")        \
    X(CLEAR_EXAMPLES, "DELETE FROM example WHERE call = ?1")                             \
    X(PUT_METRIC, "INSERT OR REPLACE INTO metric VALUES (?1, ?2, ?3, ?4, ?5)")           \
    X(PUT_EXAMPLE,                                                                       \
      "INSERT OR REPLACE INTO example VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")          \
    X(EACH_VERDICT,                                                                      \
      "SELECT " USC_VERDICT_COLUMNS " FROM verdict" USC_STANDING "ORDER BY call")        \
    X(EACH_METRIC, "SELECT * FROM metric" USC_STANDING "ORDER BY call, output, name")    \
    X(EACH_EXAMPLE, "SELECT * FROM example" USC_STANDING "ORDER BY call, output, rank")  \
    X(DONE, "SELECT call FROM verdict" USC_STANDING "ORDER BY call")                     \
    X(WALK, "SELECT " USC_VERDICT_COLUMNS " FROM verdict ORDER BY "                      \
            "usc_verdict_rank(verdict), bits IS NULL, bits, call")                       \
    X(GET_METRICS, "SELECT output, name, value, text FROM metric WHERE call = ?1 "       \
                   "ORDER BY output, name")                                              \
    X(GET_EXAMPLES,                                                                      \
      "SELECT output, rank, position, device, reference, yardstick, score FROM example " \
      "WHERE call = ?1 ORDER BY output, rank")

enum {
#define USC_RESULT_SQL_ENUM(id, sql) USC_RESULT_SQL_##id,
    USC_RESULT_SQL_LIST(USC_RESULT_SQL_ENUM)
#undef USC_RESULT_SQL_ENUM
        USC_N_RESULT_SQL
};

struct usc_result {
    usc_db db;
    usc_arena arena;     /* what the last call handed out */
    usc_arena value;     /* what usc_result_get handed out: a walk goes on beside it */
    usc_arena run_texts; /* what `run` points into */
    usc_run run;         /* the run that replaces what is there, where `stale` */
    bool writable;
    bool stale;   /* what is there is of an earlier run and goes with the first write */
    bool created; /* this object made the file */
    bool live;    /* another process writes it; this is a copy */
    int n_made;   /* folders that were made for it */
    char folder[USC_PATH_SIZE];
};

extern const usc_db_kind usc_result_kind;

/** Takes out what is there and writes who this run is, in one transaction. */
USC_NODISCARD usc_status usc_result_begin(usc_result *r, usc_error *err);

/** A field of a run, and whether it tells one run from another. */
typedef struct usc_run_field {
    const char *key, *value;
    bool compared;
} usc_run_field;

enum { USC_N_RUN_FIELDS = 7 };

/** All fields of a run; values it lacks are "". */
void usc_run_fields(const usc_run *run, usc_run_field out[USC_N_RUN_FIELDS]);

/** What the run that replaces what is there puts under `key`; NULL if nothing. */
const char *usc_result_new_field(const usc_result *r, const char *key);

/**
 * Opens a copy of the result database at `path` that another process is writing, with all
 * that it committed so far; nothing of the copy stays behind.
 * Errors: USC_E_BUSY where no whole copy could be had, USC_E_IO.
 */
USC_NODISCARD usc_status usc_result_open_copy(usc_db *db, const char *path,
                                              usc_error *err);

/** Place of a verdict in the order of precedence; USC_N_VERDICTS for other texts. */
int usc_result_rank(const char *verdict);

#endif
