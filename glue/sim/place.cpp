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
    void *(*frame_of)(void *);
    int (*has_gil)();
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
        find(frame_of, "PyThreadState_GetFrame");
        find(has_gil, "PyGILState_Check");
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

    // From a frame outwards; lets go of it.
    void write_from(void *frame, char *out, size_t size) const
    {
        while (frame != nullptr && !write(frame, out, size)) {
            void *outer = back(frame);
            drop(frame);
            frame = outer;
        }
        if (frame != nullptr) drop(frame);
    }
};

const Python &python()
{
    static const Python *found = new Python;
    return *found;
}

} // namespace

// The innermost Python line of this thread that is not torch's own.
void write_place(char *out, size_t size)
{
    TORCH_INTERNAL_ASSERT(out != nullptr && size > 0);
    const Python &p = python();
    if (!p.there || p.state() == nullptr) return;
    const int gil = p.take_gil();
    void *frame = p.frame();
    if (frame != nullptr) p.hold(frame);
    p.write_from(frame, out, size);
    p.drop_gil(gil);
}

// One that holds the lock while it runs a kernel cannot be asked about from elsewhere.
void *python_thread()
{
    const Python &p = python();
    return p.there && !p.has_gil() ? p.state() : nullptr;
}

void write_place_of(void *thread, char *out, size_t size)
{
    const Python &p = python();
    if (!p.there || thread == nullptr || thread == p.state()) {
        write_place(out, size);
        return;
    }
    const int gil = p.take_gil();
    p.write_from(p.frame_of(thread), out, size);
    p.drop_gil(gil);
}

} // namespace usc_sim
