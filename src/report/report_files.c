// SPDX-License-Identifier: Apache-2.0
// Writes the files of OUT, each under a temporary name first.
#include "report/report_model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef usc_status (*renderer)(usc_report *, const usc_sink *, usc_error *);

static usc_status io_error(usc_error *err, const char *path)
{
    return usc_error_set(err, USC_E_IO, -1, "cannot write %s: %s", path, strerror(errno));
}

static FILE *open_temporary(const char *path)
{
    (void)unlink(path); /* left by a process of the same id that was killed */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return NULL;
    FILE *stream = fdopen(fd, "w");
    if (stream == NULL) (void)close(fd);
    return stream;
}

/* One file: where, and what renders it. */
typedef struct file {
    const char *path;
    renderer render;                   /* NULL: JUnit, under the options */
    const usc_report_options *options; /* of JUnit */
} file;

static usc_status render_file(usc_report *r, const file *f, const usc_sink *sink,
                              usc_error *err)
{
    return f->render != NULL ? f->render(r, sink, err)
                             : usc_report_junit(r, f->options, sink, err);
}

static usc_status write_file(usc_report *r, const file *f, usc_error *err)
{
    usc_status st = USC_OK;
    FILE *stream = NULL;
    const char *path = f->path, *slash = strrchr(path, '/');
    const int n_folder = slash != NULL ? (int)(slash + 1 - path) : 0;
    const size_t size = strlen(path) + 32;
    char *temporary = usc_report_take(r, size);
    if (temporary == NULL) return usc_report_no_memory(r, err);
    (void)snprintf(temporary, size, "%.*s.%s.%ld", n_folder, path, path + n_folder,
                   (long)getpid());

    stream = open_temporary(temporary);
    if (stream == NULL) return io_error(err, path);
    const usc_sink sink = usc_sink_stream(stream);
    st = render_file(r, f, &sink, err);
    if (ferror(stream)) st = io_error(err, path); /* the sink does not know the name */
    if (fclose(stream) != 0 && st == USC_OK) st = io_error(err, path);
    if (st == USC_OK && rename(temporary, path) != 0) st = io_error(err, path);
    if (st != USC_OK) (void)unlink(temporary);
    return st;
}

static usc_status write_inside(usc_report *r, const char *name, renderer render,
                               usc_error *err)
{
    const size_t size = strlen(r->folder) + strlen(name) + 2;
    char *path = usc_report_take(r, size);
    if (path == NULL) return usc_report_no_memory(r, err);
    (void)snprintf(path, size, "%s/%s", r->folder, name);
    return write_file(r, &(file){.path = path, .render = render}, err);
}

usc_status usc_report_write_junit(usc_report *report, const usc_report_options *options,
                                  const char *path, usc_error *err)
{
    return write_file(report, &(file){.path = path, .options = options}, err);
}

usc_status usc_report_write_files(usc_report *report, usc_error *err)
{
    static const struct {
        const char *name;
        renderer render;
    } files[] = {{"result.csv", usc_report_csv},
                 {"details.csv", usc_report_details},
                 {"result.json", usc_report_json},
                 {"report.html", usc_report_html}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const usc_status st = write_inside(report, files[i].name, files[i].render, err);
        if (st != USC_OK) return st;
    }
    return USC_OK;
}
