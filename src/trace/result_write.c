// SPDX-License-Identifier: Apache-2.0
// Writing OUT/result.db: which run may go on in it, and verdicts one transaction each.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <ulpscope/judge.h>
#include <unistd.h>

#include "trace/result_db.h"

/* The list is taken from the header alone: no call goes up into the judge. */
int usc_result_rank(const char *verdict)
{
    static const char *const texts[] = {
#define VERDICT_TEXT(id, name, flagged) name,
        USC_VERDICT_LIST(VERDICT_TEXT)
#undef VERDICT_TEXT
    };
    int rank = 0;
    while (rank < USC_N_VERDICTS &&
           (verdict == NULL || strcmp(verdict, texts[rank]) != 0))
        rank++;
    return rank;
}

static const char schema[] =
    "CREATE TABLE run(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE verdict(call INTEGER PRIMARY KEY, step INTEGER NOT NULL, phase TEXT,"
    " op TEXT NOT NULL, culprit TEXT, module TEXT, module_class TEXT,"
    " verdict TEXT NOT NULL, bits REAL, yardstick_bits REAL, bound INTEGER NOT NULL,"
    " cause TEXT, sentence TEXT, notes TEXT, output TEXT, args TEXT, stack TEXT,"
    " n_elements INTEGER NOT NULL, stands_for INTEGER NOT NULL,"
    " t_device INTEGER NOT NULL, t_reference INTEGER NOT NULL,"
    " t_perturbed INTEGER NOT NULL, t_judge INTEGER NOT NULL, t_total INTEGER NOT NULL);"
    "CREATE TABLE metric(call INTEGER NOT NULL REFERENCES verdict(call),"
    " output INTEGER NOT NULL, name TEXT NOT NULL, value REAL, text TEXT,"
    " PRIMARY KEY(call, output, name)) WITHOUT ROWID;"
    "CREATE TABLE example(call INTEGER NOT NULL REFERENCES verdict(call),"
    " output INTEGER NOT NULL, rank INTEGER NOT NULL, position TEXT NOT NULL,"
    " device REAL, reference REAL, yardstick REAL, score REAL,"
    " PRIMARY KEY(call, output, rank)) WITHOUT ROWID;";

static const char *const statements[] = {
#define RESULT_SQL_TEXT(id, sql) sql,
    USC_RESULT_SQL_LIST(RESULT_SQL_TEXT)
#undef RESULT_SQL_TEXT
};

_Static_assert(USC_N_RESULT_SQL <= USC_DB_MAX_STATEMENTS, "statement cache too small");

const usc_db_kind usc_result_kind = {
    .noun = "result",
    .application_id = 0x554c5052, /* "ULPR" */
    .version = USC_RESULT_VERSION,
    .schema = schema,
    .sql = statements,
};

/* ---- which run this is ---- */

typedef struct run_field {
    const char *key, *value;
    bool compared;
} run_field;

enum { N_RUN_FIELDS = 7 };

static void fields_of(const usc_run *run, run_field out[N_RUN_FIELDS])
{
    const run_field fields[N_RUN_FIELDS] = {
        {"trace", run->trace, false},
        {"trace_id", run->trace_id, true},
        {"device", run->device, true},
        {"standard", run->standard, true},
        {"faults", run->faults, true},
        {"options", run->options, true},
        {"environment", run->environment, false},
    };
    for (int i = 0; i < N_RUN_FIELDS; i++) {
        out[i] = fields[i];
        if (out[i].value == NULL) out[i].value = "";
    }
}

static usc_status begin_run(usc_result *r, const usc_run *run, usc_error *err)
{
    char created[32];
    struct tm utc;
    const time_t now = time(NULL);
    run_field fields[N_RUN_FIELDS];
    gmtime_r(&now, &utc);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fields_of(run, fields);
    usc_status st = usc_db_exec(&r->db, "BEGIN", "beginning", err);
    if (st == USC_OK) st = usc_result_set(r, "format", "ulpscope-result", err);
    if (st == USC_OK) st = usc_result_set(r, "created", created, err);
    if (st == USC_OK) st = usc_result_set(r, "state", "running", err);
    for (int i = 0; i < N_RUN_FIELDS && st == USC_OK; i++)
        st = usc_result_set(r, fields[i].key, fields[i].value, err);
    return st == USC_OK ? usc_db_exec(&r->db, "COMMIT", "committing", err) : st;
}

/* *same is false where OUT holds another run; `err` tells then which field differs. */
static usc_status compare_run(usc_result *r, const usc_run *run, bool *same,
                              usc_error *err)
{
    run_field fields[N_RUN_FIELDS];
    fields_of(run, fields);
    *same = true;
    for (int i = 0; i < N_RUN_FIELDS; i++) {
        if (!fields[i].compared) continue;
        const char *there = usc_result_get(r, fields[i].key);
        if (there != NULL && strcmp(there, fields[i].value) == 0) continue;
        *same = false;
        const char *key = fields[i].key, *is = key[strlen(key) - 1] == 's' ? "are" : "is";
        return usc_error_set(err, USC_E_EXISTS, -1,
                             "%s: holds another run: its %s %s '%.120s', not '%.120s'",
                             r->folder, key, is, there != NULL ? there : "",
                             fields[i].value);
    }
    return USC_OK;
}

static void remove_database(const char *path)
{
    static const char *const suffix[] = {"", "-wal", "-shm", "-journal"};
    char name[USC_PATH_SIZE + 16];
    for (size_t i = 0; i < sizeof suffix / sizeof suffix[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, suffix[i]);
        unlink(name);
    }
}

/* Goes on in the database at `path`, which exists. */
static usc_status resume_run(usc_result *r, const usc_run *run, const char *path,
                             usc_error *err)
{
    bool same = false, unfinished;
    /* Refuses what is no database before SQLite would take a short file for an empty. */
    usc_status st = usc_db_unfinished(path, &unfinished, err);
    if (st == USC_OK) st = usc_db_open_writable(&r->db, &usc_result_kind, path, err);
    if (st == USC_OK) st = compare_run(r, run, &same, err);
    return st;
}

static bool has_no_verdict(usc_result *r)
{
    const int64_t *calls;
    int64_t n;
    return usc_result_done(r, &calls, &n, NULL) == USC_OK && n == 0;
}

static usc_status open_run(usc_result *r, const usc_run *run, bool force, usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_status st = usc_path_join(path, r->folder, "result.db", err);
    if (st != USC_OK) return st;
    if (mkdir(r->folder, 0777) != 0 && errno != EEXIST)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: creating the folder: %s", r->folder, strerror(errno));
    if (access(path, F_OK) == 0) {
        st = resume_run(r, run, path, err);
        const bool other =
            st == USC_E_EXISTS || st == USC_E_CORRUPT || st == USC_E_VERSION;
        /* A run that came to nothing, say for a device that is not there, is no loss. */
        const bool empty = st == USC_E_EXISTS && has_no_verdict(r);
        if (!other || !(force || empty)) return st;
        usc_db_close(&r->db);
        remove_database(path);
    }
    st = usc_db_create(&r->db, &usc_result_kind, path, err);
    return st == USC_OK ? begin_run(r, run, err) : st;
}

usc_status usc_result_create(const char *out_folder, const usc_run *run, bool force,
                             usc_result **out, usc_error *err)
{
    const usc_alloc *alloc = &usc_libc_alloc;
    *out = NULL;
    usc_result *r = alloc->resize(alloc->ctx, NULL, 0, sizeof *r);
    if (r == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", out_folder);
    *r = (usc_result){.arena = {.alloc = *alloc}, .value = {.alloc = *alloc}};
    const int n = snprintf(r->folder, sizeof r->folder, "%s", out_folder);
    usc_status st = USC_OK;
    if (n < 0 || n >= USC_PATH_SIZE)
        st = usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", out_folder);
    if (st == USC_OK) st = open_run(r, run, force, err);
    r->writable = st == USC_OK;
    if (st == USC_OK) {
        *out = r;
        r = NULL;
    }
    usc_result_close(r);
    return st;
}

/* ---- rows ---- */

usc_status usc_result_clear(usc_result *r, usc_error *err)
{
    return usc_db_exec(&r->db,
                       "BEGIN; DELETE FROM metric; DELETE FROM example; "
                       "DELETE FROM verdict; COMMIT",
                       "clearing", err);
}

usc_status usc_result_set(usc_result *r, const char *key, const char *value,
                          usc_error *err)
{
    return usc_db_put(&r->db, USC_RESULT_SQL_SET_RUN, err, "ss", key, value);
}

static usc_status put_verdict(usc_result *r, const usc_result_row *row, usc_error *err)
{
    usc_status st = usc_db_put(
        &r->db, USC_RESULT_SQL_PUT_VERDICT, err, "iissssssddissssssiiiiiii", row->call,
        row->step, row->phase, row->op, row->culprit, row->module, row->module_class,
        row->verdict, row->bits, row->yardstick_bits, (int64_t)row->bound, row->cause,
        row->sentence, row->notes, row->output, row->args, row->stack, row->n_elements,
        row->stands_for, row->t_device, row->t_reference, row->t_perturbed, row->t_judge,
        row->t_total);
    if (st == USC_OK)
        st = usc_db_put(&r->db, USC_RESULT_SQL_CLEAR_METRICS, err, "i", row->call);
    if (st == USC_OK)
        st = usc_db_put(&r->db, USC_RESULT_SQL_CLEAR_EXAMPLES, err, "i", row->call);
    for (int i = 0; i < row->n_metrics && st == USC_OK; i++) {
        const usc_metric *m = &row->metrics[i];
        st = usc_db_put(&r->db, USC_RESULT_SQL_PUT_METRIC, err, "iisds", row->call,
                        (int64_t)m->output, m->name, m->value, m->text);
    }
    for (int i = 0; i < row->n_examples && st == USC_OK; i++) {
        const usc_result_example *e = &row->examples[i];
        st = usc_db_put(&r->db, USC_RESULT_SQL_PUT_EXAMPLE, err, "iiisdddd", row->call,
                        (int64_t)e->output, (int64_t)e->rank, e->index, e->device,
                        e->reference, e->yardstick, e->score);
    }
    return st;
}

usc_status usc_result_put(usc_result *r, const usc_result_row *row, usc_error *err)
{
    if (usc_result_rank(row->verdict) == USC_N_VERDICTS)
        return usc_error_set(err, USC_E_ARG, row->call, "call %lld: no verdict is '%s'",
                             (long long)row->call,
                             row->verdict != NULL ? row->verdict : "");
    usc_status st = usc_db_exec(&r->db, "BEGIN", "beginning", err);
    if (st != USC_OK) return st;
    st = put_verdict(r, row, err);
    if (st == USC_OK) st = usc_db_exec(&r->db, "COMMIT", "committing", err);
    if (st != USC_OK) (void)sqlite3_exec(r->db.handle, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

void usc_result_close(usc_result *r)
{
    if (r == NULL) return;
    /* Failure leaves a journal, from which the next open recovers every row. */
    if (r->writable && usc_db_make_plain(&r->db, NULL) != USC_OK)
        sqlite3_exec(r->db.handle, "ROLLBACK", NULL, NULL, NULL);
    usc_db_close(&r->db);
    usc_arena_free(&r->arena);
    usc_arena_free(&r->value);
    usc_libc_alloc.resize(usc_libc_alloc.ctx, r, sizeof *r, 0);
}
