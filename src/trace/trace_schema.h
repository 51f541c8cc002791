// SPDX-License-Identifier: Apache-2.0
// Tables of trace.db and the statements of writer and reader:
// docs/reference/trace-format.md.
#ifndef USC_TRACE_SCHEMA_H
#define USC_TRACE_SCHEMA_H

#include "db/db.h"
#include "trace/trace_shard.h"

/* What usc_trace_read_call reads of each tensor of a call; of the columns in `late`
 * format 1 has the blob only. */
#define USC_SQL_ARGS(late)                                                               \
    "SELECT a.role, a.path, a.tensor, t.version, t.dtype, t.sizes, t.strides, "          \
    "t.\"offset\", t.requires_grad, t.stats, v.storage, v.generation, v.call, "          \
    "s.device, s.bytes, " late " FROM arg a LEFT JOIN tensor t ON t.id = a.tensor "      \
    "LEFT JOIN version v ON v.id = t.version LEFT JOIN storage s ON s.id = v.storage "   \
    "WHERE a.call = ?1 ORDER BY a.position"

/* id, SQL */
#define USC_TRACE_SQL_LIST(X)                                                            \
    X(LIST_BLOBS, USC_SQL_SHARD_BLOBS)                                                   \
    X(SET_META, "INSERT OR REPLACE INTO meta VALUES (?1, ?2)")                           \
    X(PUT_STEP, "INSERT OR REPLACE INTO step VALUES (?1, ?2, ?3, ?4)")                   \
    X(PUT_MODULE, "INSERT INTO module VALUES (?1, ?2, ?3)")                              \
    X(PUT_STACK, "INSERT INTO stack VALUES (?1, ?2)")                                    \
    X(PUT_OP, "INSERT INTO op VALUES (?1, ?2, ?3)")                                      \
    X(PUT_BLOB, "INSERT INTO blob VALUES (?1, ?2, ?3, ?4, ?5)")                          \
    X(PUT_STORAGE, "INSERT INTO storage VALUES (?1, ?2, ?3)")                            \
    X(PUT_VERSION, "INSERT INTO version VALUES (?1, ?2, ?3, ?4, ?5)")                    \
    X(PUT_TENSOR, "INSERT INTO tensor VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, " \
                  "?11)")                                                                \
    X(PUT_CALL, "INSERT INTO call VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "     \
                "?11, ?12)")                                                             \
    X(END_CALL, "UPDATE call SET status = ?2 WHERE sequence = ?1")                       \
    X(PUT_ARG, "INSERT INTO arg VALUES (?1, ?2, ?3, ?4, ?5)")                            \
    X(PUT_NOTE, "INSERT INTO note VALUES (?1, ?2, ?3)")                                  \
    X(GET_META, "SELECT value FROM meta WHERE key = ?1")                                 \
    X(EACH_META, "SELECT key, value FROM meta")                                          \
    X(GET_SHARDS, "SELECT shard, max(\"offset\" + bytes) FROM blob GROUP BY shard")      \
    X(GET_CALL,                                                                          \
      "SELECT c.step, c.phase, c.parent, c.thread, c.module, c.stack, c.args, c.state, " \
      "c.status, c.composite, o.name, o.\"schema\", m.path, m.class, s.frames, "         \
      "(SELECT count(*) FROM call k WHERE k.parent = c.sequence) "                       \
      "FROM call c LEFT JOIN op o ON o.id = c.op LEFT JOIN module m ON m.id = c.module " \
      "LEFT JOIN stack s ON s.id = c.stack WHERE c.sequence = ?1")                       \
    X(GET_ARGS, USC_SQL_ARGS("coalesce(v.blob, t.blob), t.first, t.form"))               \
    X(GET_ARGS_1, USC_SQL_ARGS("v.blob, 0, NULL")) /* format 1 */                        \
    X(GET_BLOB, "SELECT shard, \"offset\", bytes, hash FROM blob WHERE id = ?1")         \
    X(SELECT,                                                                            \
      "SELECT sequence FROM call WHERE (?1 IS NULL OR op IN (SELECT id FROM op WHERE "   \
      "usc_op_matches(?1, name))) AND (?2 IS NULL OR module IN (SELECT id FROM module "  \
      "WHERE path GLOB ?2)) AND (?3 IS NULL OR phase = ?3) AND (?4 < 0 OR step = ?4) "   \
      "AND (?5 = 0 OR parent IS NULL) ORDER BY sequence")                                \
    X(SCAN_OPS, "SELECT id, name FROM op ORDER BY id")                                   \
    X(USED_OPS, "SELECT name FROM op WHERE id IN (SELECT DISTINCT op FROM call)")        \
    X(SCAN_MODULES, "SELECT id, path FROM module ORDER BY id")                           \
    X(SCAN_BLOBS, "SELECT id, hash FROM blob ORDER BY id")                               \
    X(SCAN_VERSIONS, "SELECT id, call, blob, storage FROM version ORDER BY id")          \
    X(SCAN_STORAGES, "SELECT id FROM storage ORDER BY id")                               \
    X(SCAN_TENSORS, "SELECT id, version, dtype, sizes, strides, \"offset\", stats, "     \
                    "blob, first, form, requires_grad FROM tensor ORDER BY id")          \
    X(SCAN_TENSORS_1,                                                                    \
      "SELECT id, version, dtype, sizes, strides, \"offset\", stats, "                   \
      "0, 0, NULL, requires_grad FROM tensor ORDER BY id") /* format 1 */                \
    X(SCAN_CALLS, "SELECT sequence, step, phase, op, module, parent, args, state "       \
                  "FROM call ORDER BY sequence")                                         \
    X(SCAN_ARGS, "SELECT call, role, path, tensor FROM arg ORDER BY call, role, path")

enum {
#define USC_TRACE_SQL_ENUM(id, sql) USC_SQL_##id,
    USC_TRACE_SQL_LIST(USC_TRACE_SQL_ENUM)
#undef USC_TRACE_SQL_ENUM
        USC_N_TRACE_SQL
};

extern const usc_db_kind usc_trace_kind;

/** Cuts and seals what a killed writer left and makes trace.db a plain file. Errors: as
 * usc_db_open_writable, usc_trace_cut and usc_shard_seal. */
USC_NODISCARD usc_status usc_trace_recover(const char *folder, const usc_alloc *alloc,
                                           usc_error *err);

/**
 * Where bytes that rows name are not on the disk (the machine died): deletes the calls
 * from the first one on that needs such a blob or a later one, says so in meta `lost` and
 * in a note, and marks the trace incomplete; all calls before are whole then. Else does
 * nothing. A database that may not be written is cut in a copy in memory, which takes its
 * place.
 *
 * Errors: USC_E_CORRUPT, USC_E_IO, USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_trace_cut(usc_db *db, const char *folder, usc_error *err);

/** Seals every shard that rows name and removes parts that none does. */
USC_NODISCARD usc_status usc_trace_seal_all(usc_db *db, const char *folder,
                                            const usc_alloc *alloc, usc_error *err);

#endif
