// SPDX-License-Identifier: Apache-2.0
// The tables of trace.db. Names are the contract of docs/reference/trace-format.md.
#include "trace/trace_schema.h"

#include <ulpscope/trace.h>

static const char schema[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE step(step INTEGER PRIMARY KEY, first_call INTEGER, last_call INTEGER,"
    " complete INTEGER NOT NULL);"
    "CREATE TABLE module(id INTEGER PRIMARY KEY, path TEXT NOT NULL, class TEXT);"
    "CREATE TABLE stack(id INTEGER PRIMARY KEY, frames TEXT NOT NULL);"
    "CREATE TABLE op(id INTEGER PRIMARY KEY, name TEXT NOT NULL, \"schema\" TEXT);"
    "CREATE TABLE blob(id INTEGER PRIMARY KEY, hash TEXT NOT NULL, bytes INTEGER NOT "
    "NULL,"
    " shard INTEGER NOT NULL, \"offset\" INTEGER NOT NULL);"
    "CREATE TABLE storage(id INTEGER PRIMARY KEY, device TEXT NOT NULL,"
    " bytes INTEGER NOT NULL);"
    "CREATE TABLE version(id INTEGER PRIMARY KEY,"
    " storage INTEGER NOT NULL REFERENCES storage(id), generation INTEGER NOT NULL,"
    " blob INTEGER REFERENCES blob(id), call INTEGER REFERENCES call(sequence));"
    "CREATE TABLE tensor(id INTEGER PRIMARY KEY,"
    " version INTEGER NOT NULL REFERENCES version(id), dtype TEXT NOT NULL,"
    " sizes TEXT NOT NULL, strides TEXT NOT NULL, \"offset\" INTEGER NOT NULL,"
    " requires_grad INTEGER NOT NULL, stats TEXT, form TEXT,"
    " blob INTEGER REFERENCES blob(id), first INTEGER NOT NULL);"
    "CREATE TABLE call(sequence INTEGER PRIMARY KEY, step INTEGER NOT NULL,"
    " phase TEXT NOT NULL, op INTEGER NOT NULL REFERENCES op(id),"
    " module INTEGER REFERENCES module(id), stack INTEGER REFERENCES stack(id),"
    " thread INTEGER NOT NULL, parent INTEGER REFERENCES call(sequence),"
    " args TEXT NOT NULL, state TEXT, status TEXT NOT NULL, composite INTEGER NOT NULL);"
    "CREATE INDEX call_parent ON call(parent) WHERE parent IS NOT NULL;"
    "CREATE TABLE arg(call INTEGER NOT NULL REFERENCES call(sequence),"
    " role TEXT NOT NULL, path TEXT NOT NULL, position INTEGER NOT NULL,"
    " tensor INTEGER NOT NULL REFERENCES tensor(id), PRIMARY KEY(call, role, path))"
    " WITHOUT ROWID;"
    "CREATE TABLE note(call INTEGER REFERENCES call(sequence), kind TEXT NOT NULL,"
    " text TEXT NOT NULL);";

static const char *const statements[] = {
#define USC_TRACE_SQL_TEXT(id, sql) sql,
    USC_TRACE_SQL_LIST(USC_TRACE_SQL_TEXT)
#undef USC_TRACE_SQL_TEXT
};

_Static_assert(USC_N_TRACE_SQL <= USC_DB_MAX_STATEMENTS, "statement cache too small");

const usc_db_kind usc_trace_kind = {
    .noun = "trace",
    .application_id = 0x554c5054, /* "ULPT" */
    .version = USC_TRACE_VERSION,
    .schema = schema,
    .sql = statements,
};

const char *usc_phase_text(usc_phase phase)
{
    static const char *const text[] = {
#define USC_PHASE_TEXT(id, name) name,
        USC_PHASE_LIST(USC_PHASE_TEXT)
#undef USC_PHASE_TEXT
    };
    return (unsigned)phase < USC_N_PHASES ? text[phase] : "unknown";
}
