// SPDX-License-Identifier: Apache-2.0
// A port of a folder: what lies in it, the files that are ported one after the other,
// and where they go.
#ifndef USC_PORT_TREE_H
#define USC_PORT_TREE_H

#include <sys/stat.h>

#include "base/path.h"
#include "port/port_own.h"

typedef enum usc_port_what {
    USC_PORT_FILE,
    USC_PORT_FOLDER,
    USC_PORT_LINK
} usc_port_what;

typedef struct usc_port_entry {
    const char *path; /* below the source */
    const char *to;   /* the same, or with another ending */
    usc_port_what what;
    usc_port_language language;
    const char *refused; /* why it is left as it is; NULL: it is not */
} usc_port_entry;

typedef struct usc_port_run_state {
    usc_port_result result; /* what is handed out; first */
    usc_arena kept;         /* of the result */
    usc_arena scratch;      /* of one file */
    const usc_port_options *options;
    usc_port_names names;
    usc_port_renames renames;
    usc_port_own own;
    usc_port_terms terms;
    char root[USC_PATH_SIZE];  /* the folder of the source */
    char named[USC_PATH_SIZE]; /* the same as it was given */
    bool single;               /* the source is a file */
    usc_port_entry *entry;
    size_t n_entries, entries_size;
    usc_port_file *file;
    size_t files_size;
} usc_port_run_state;

/** What one file became. */
typedef struct usc_port_done {
    const char *bytes; /* as they are after the port, in the state's scratch memory; NULL:
                          they were not read */
    size_t size;
    mode_t mode;
    bool changed;
} usc_port_done;

/** Finds what lies in the source, sorted, and what is renamed. */
USC_NODISCARD usc_status usc_port_walk(usc_port_run_state *s, const char *source,
                                       usc_error *err);

/** Ports the bytes of an entry, and puts what came of it into the result. */
USC_NODISCARD usc_status usc_port_one(usc_port_run_state *s, const usc_port_entry *e,
                                      const char *bytes, size_t size, usc_port_done *done,
                                      usc_error *err);

/** Learns from an entry which names are the source's own. */
USC_NODISCARD usc_status usc_port_learn(usc_port_run_state *s, const usc_port_entry *e,
                                        usc_error *err);

/** The job of an entry whose bytes are these. */
usc_port_job usc_port_job_of(usc_port_run_state *s, const usc_port_entry *e,
                             const char *bytes, size_t size);

/** A further file of the result; NULL without memory. */
usc_port_file *usc_port_add_file(usc_port_run_state *s, const usc_port_entry *e);

/** Reads and ports an entry. */
USC_NODISCARD usc_status usc_port_entry_run(usc_port_run_state *s,
                                            const usc_port_entry *e, usc_port_done *done,
                                            usc_error *err);

/** Makes a file, or empties it, and writes it; what was begun is removed where that
 * fails. */
USC_NODISCARD usc_status usc_port_write_file(const char *path, const char *bytes,
                                             size_t size, mode_t mode, usc_error *err);

/** Reads a file whole, with a zero behind it, into the arena. Errors: USC_E_IO,
 * USC_E_NOMEM, USC_E_RANGE (more than 64 MiB). */
USC_NODISCARD usc_status usc_port_read(const char *path, usc_arena *arena, char **bytes,
                                       size_t *size, struct stat *about, usc_error *err);

/** Writes a file under another name, flushes it and moves it to its place. */
USC_NODISCARD usc_status usc_port_write(const char *path, const char *bytes, size_t size,
                                        mode_t mode, usc_error *err);

/** Ports into a folder that appears when it is complete. */
USC_NODISCARD usc_status usc_port_to_folder(usc_port_run_state *s, usc_error *err);

/** Ports in place. */
USC_NODISCARD usc_status usc_port_in_place(usc_port_run_state *s, const char *source,
                                           usc_error *err);

/** The folder that holds what a port in place needs to go back. */
USC_NODISCARD usc_status usc_port_back_folder(const char *source, char *root, char *out,
                                              usc_error *err);

#endif
