// SPDX-License-Identifier: Apache-2.0
// An output folder that appears when it is complete.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "port/port_tree.h"

static usc_status refused(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
}

/* A file of the output: in a folder that appears as a whole it needs no step of its own. */
static usc_status put_file(const usc_port_run_state *s, const char *to, const char *bytes,
                           size_t size, mode_t mode, usc_error *err)
{
    return s->single ? usc_port_write(to, bytes, size, mode, err)
                     : usc_port_write_file(to, bytes, size, mode, err);
}

static usc_status copy(usc_port_run_state *s, const char *from, const char *to,
                       usc_error *err)
{
    char *bytes;
    size_t size;
    struct stat about;
    usc_status st = usc_port_read(from, &s->scratch, &bytes, &size, &about, err);
    if (st == USC_OK) st = put_file(s, to, bytes, size, about.st_mode, err);
    return st;
}

static usc_status link_again(const char *from, const char *to, usc_error *err)
{
    char text[PATH_MAX];
    const ssize_t n = readlink(from, text, sizeof text - 1);
    if (n < 0) return refused(from, err);
    text[n] = '\0';
    return symlink(text, to) == 0 ? USC_OK : refused(to, err);
}

static usc_status put_entry(usc_port_run_state *s, const usc_port_entry *e,
                            const char *to, usc_error *err)
{
    char from[USC_PATH_SIZE];
    usc_port_done done;
    usc_status st = usc_path_join(from, s->root, e->path, err);
    if (st != USC_OK) return st;
    if (e->what == USC_PORT_FOLDER && to != NULL)
        return mkdir(to, 0777) == 0 ? USC_OK : refused(to, err);
    st = usc_port_entry_run(s, e, &done, err);
    if (st != USC_OK || to == NULL) return st;
    if (e->what == USC_PORT_LINK)
        return e->refused == NULL ? link_again(from, to, err) : USC_OK;
    if (done.bytes == NULL) return copy(s, from, to, err);
    return put_file(s, to, done.bytes, done.size, done.mode, err);
}

/* "csrc_musa" beside csrc; "train_musa.py" beside train.py, "a.mu" beside a.cu. */
static usc_status choose_out(usc_port_run_state *s, char out[USC_PATH_SIZE],
                             usc_error *err)
{
    const char *target = usc_port_target_text(s->options->target), *named = s->named;
    const usc_port_entry *e = s->entry;
    const size_t size = strlen(named);
    const char *dot = s->single ? strrchr(e->path, '.') : NULL;
    if (dot == NULL || dot == e->path) dot = "";
    const int stem = (int)(size - strlen(dot));
    int n;
    if (s->options->out != NULL) {
        n = snprintf(out, USC_PATH_SIZE, "%s", s->options->out);
        while (n > 1 && n < USC_PATH_SIZE && out[n - 1] == '/')
            out[--n] = '\0';
    } else if (s->single && strcmp(e->path, e->to) != 0) {
        n = snprintf(out, USC_PATH_SIZE, "%.*s%s", stem, named, strrchr(e->to, '.'));
    } else {
        n = snprintf(out, USC_PATH_SIZE, "%.*s_%s%s", stem, named, target, dot);
    }
    return n > 0 && n < USC_PATH_SIZE
               ? USC_OK
               : usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", s->root);
}

/* The output must not be there, or be an empty folder, and not lie in the source. */
static usc_status check_out(const usc_port_run_state *s, const char *out, usc_error *err)
{
    char full[PATH_MAX], parent[USC_PATH_SIZE];
    (void)snprintf(parent, sizeof parent, "%s", out);
    char *last = strrchr(parent, '/');
    if (last != NULL && last != parent) *last = '\0';
    if (realpath(last != NULL ? parent : ".", full) == NULL) {
        if (errno == ENOENT) return USC_OK; /* is made */
        return refused(out, err);
    }
    const size_t n = strlen(s->root);
    if (!s->single && strncmp(full, s->root, n) == 0 &&
        (full[n] == '/' || full[n] == '\0'))
        return usc_error_set(err, USC_E_ARG, -1,
                             "%s lies in the source; name another folder with -o, or say "
                             "--in-place",
                             out);
    if (!s->options->dry_run && access(out, F_OK) == 0 && (s->single || rmdir(out) != 0))
        return usc_error_set(err, USC_E_EXISTS, -1,
                             "%s is there already; name another one with -o", out);
    return USC_OK;
}

static usc_status make_parent(const char *out, usc_error *err)
{
    char parent[USC_PATH_SIZE];
    (void)snprintf(parent, sizeof parent, "%s", out);
    char *last = strrchr(parent, '/');
    if (last == NULL || last == parent) return USC_OK;
    *last = '\0';
    return usc_folder_make(parent, "", err);
}

usc_status usc_port_to_folder(usc_port_run_state *s, usc_error *err)
{
    char out[USC_PATH_SIZE], part[USC_PATH_SIZE], to[USC_PATH_SIZE];
    const bool dry = s->options->dry_run;
    usc_status st = choose_out(s, out, err);
    if (st == USC_OK) st = check_out(s, out, err);
    if (st == USC_OK && !dry) st = make_parent(out, err);
    if (st != USC_OK) return st;
    s->result.out = usc_arena_text(&s->kept, out);
    if (s->single) return put_entry(s, s->entry, dry ? NULL : out, err);
    if (!dry) {
        st = usc_folder_part(out, part, err);
        if (st != USC_OK) return st;
        usc_folder_remove(part); /* of a run that was cut short */
        st = usc_folder_make(part, "", err);
    }
    for (size_t i = 0; i < s->n_entries && st == USC_OK; i++) {
        if (!dry) st = usc_path_join(to, part, s->entry[i].to, err);
        if (st == USC_OK) st = put_entry(s, &s->entry[i], dry ? NULL : to, err);
    }
    /* not flushed to the disk: the source is there still, as with what a compiler writes */
    if (st == USC_OK && !dry && rename(part, out) != 0) st = refused(out, err);
    if (st != USC_OK && !dry) usc_folder_remove(part);
    return st;
}
