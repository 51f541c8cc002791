// SPDX-License-Identifier: Apache-2.0
// One call computed by a Python function: its arguments as Python has them, its results
// as the schema wants them.
#include "../torch_private_python.h"
#include "reroute.h"

namespace intercept
{

#ifdef USC_GLUE_KNOWS_PYTHON
namespace
{

PyObject *new_reference(void *object)
{
    return Py_NewRef(static_cast<PyObject *>(object));
}

const char *name_of(at::MemoryFormat format)
{
    switch (format) {
    case at::MemoryFormat::Contiguous:
        return "contiguous_format";
    case at::MemoryFormat::ChannelsLast:
        return "channels_last";
    case at::MemoryFormat::ChannelsLast3d:
        return "channels_last_3d";
    default:
        return "preserve_format";
    }
}

py::object to_python(const IValue &value, Spelling spelling)
{
    if (value.isInt() && spelling == Spelling::dtype)
        return py::reinterpret_steal<py::object>(new_reference(
            torch::getTHPDtype(static_cast<at::ScalarType>(value.toInt()))));
    if (value.isInt() && spelling == Spelling::layout)
        return py::reinterpret_steal<py::object>(
            new_reference(torch::getTHPLayout(static_cast<at::Layout>(value.toInt()))));
    if (value.isInt() && spelling == Spelling::memory_format)
        return py::module_::import("torch").attr(
            name_of(static_cast<at::MemoryFormat>(value.toInt())));
    return usc_glue::to_python(value);
}

void push(const Target &target, Stack *stack, const py::object &result)
{
    const auto &returns = target.op.handle.schema().returns();
    if (returns.empty()) return;
    if (returns.size() == 1) {
        stack->push_back(usc_glue::from_python(result, returns[0].real_type()));
        return;
    }
    const auto several = py::cast<py::tuple>(result);
    for (size_t i = 0; i < returns.size(); ++i)
        stack->push_back(usc_glue::from_python(several[i], returns[i].real_type()));
}

} // namespace

/* The function is ours (program/reroute.py): it has checked what the user's returned. */
void run_function(const Route &route, const Target &target, Stack *stack)
{
    const size_t n = target.op.arguments.size();
    TORCH_INTERNAL_ASSERT(stack->size() >= n);
    py::gil_scoped_acquire gil;
    try {
        py::list args;
        py::dict kwargs;
        for (size_t i = 0; i < n; ++i) {
            const Argument &a = target.op.arguments[i];
            py::object value = to_python((*stack)[stack->size() - n + i], a.spelling);
            if (a.keyword.empty())
                args.append(value);
            else
                kwargs[a.keyword.c_str()] = value;
        }
        const auto function =
            py::reinterpret_borrow<py::object>(static_cast<PyObject *>(route.function));
        const py::object result = function(target.op.name, py::tuple(args), kwargs);
        Stack made;
        push(target, &made, result);
        stack->resize(stack->size() - n);
        stack->insert(stack->end(), made.begin(), made.end());
    } catch (py::error_already_set &raised) {
        raised.restore();
        python_error error; /* which autograd's threads hand on as it is */
        error.persist();
        throw error;
    }
}
#else
void run_function(const Route &, const Target &, Stack *)
{
    throw std::runtime_error(
        "the interception glue was compiled without Python's headers, "
        "which a substitute needs: install them (python3-dev)");
}
#endif

} // namespace intercept
