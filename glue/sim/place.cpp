// SPDX-License-Identifier: Apache-2.0
// Where a program launched a kernel.
#include "sim_glue.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace usc_sim
{
namespace
{

// Python is asked through the process's own symbols: this library is not linked to it.
struct Python {
    void *(*state)();
    int (*take_gil)();
    void (*drop_gil)(int);
    void *(*frame)(); // borrowed
    void *(*back)(void *);
    void *(*code)(void *);
    int (*line)(void *);
    void *(*attribute)(void *, const char *);
    const char *(*text)(void *);
    void (*hold)(void *);
    void (*drop)(void *);
    bool there = true;

    template <class F> void find(F &f, const char *name)
    {
        f = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
        there = there && f != nullptr;
    }
    Python()
    {
        find(state, "PyGILState_GetThisThreadState");
        find(take_gil, "PyGILState_Ensure");
        find(drop_gil, "PyGILState_Release");
        find(frame, "PyEval_GetFrame");
        find(back, "PyFrame_GetBack");
        find(code, "PyFrame_GetCode");
        find(line, "PyFrame_GetLineNumber");
        find(attribute, "PyObject_GetAttrString");
        find(text, "PyUnicode_AsUTF8");
        find(hold, "Py_IncRef");
        find(drop, "Py_DecRef");
    }

    // Writes the place of a frame; false where it is one of torch's own files.
    bool write(void *f, char *out, size_t size) const
    {
        void *its_code = code(f);
        void *name = attribute(its_code, "co_filename");
        const char *file = name != nullptr ? text(name) : nullptr;
        const bool users = file != nullptr && std::strstr(file, "/torch/") == nullptr;
        if (users) {
            const char *slash = std::strrchr(file, '/');
            (void)snprintf(out, size, "%s:%d", slash != nullptr ? slash + 1 : file,
                           line(f));
        }
        if (name != nullptr) drop(name);
        drop(its_code);
        return users;
    }
};

} // namespace

// The innermost Python line of this thread that is not torch's own.
void write_place(char *out, size_t size)
{
    TORCH_INTERNAL_ASSERT(out != nullptr && size > 0);
    static const Python *python = new Python;
    if (!python->there || python->state() == nullptr) return;
    const int gil = python->take_gil();
    void *frame = python->frame();
    if (frame != nullptr) python->hold(frame);
    while (frame != nullptr && !python->write(frame, out, size)) {
        void *outer = python->back(frame);
        python->drop(frame);
        frame = outer;
    }
    if (frame != nullptr) python->drop(frame);
    python->drop_gil(gil);
}

} // namespace usc_sim
