// SPDX-License-Identifier: Apache-2.0
// One call computed by a Python function: its arguments as Python has them, its results
// as the schema wants them.
#include "reroute.h"

#if __has_include(<Python.h>)
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>
#define KNOWS_PYTHON 1
#endif

namespace intercept
{

#ifdef KNOWS_PYTHON
namespace
{

PyObject *new_reference(void *object)
{
    return Py_NewRef(static_cast<PyObject *>(object));
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
        return py::reinterpret_steal<py::object>(
            new_reference(torch::utils::getTHPMemoryFormat(
                static_cast<at::MemoryFormat>(value.toInt()))));
    return torch::jit::toPyObject(value);
}

void push(const Target &target, Stack *stack, const py::object &result)
{
    const auto &returns = target.op.handle.schema().returns();
    if (returns.empty()) return;
    if (returns.size() == 1) {
        stack->push_back(torch::jit::toIValue(result, returns[0].real_type()));
        return;
    }
    const auto several = py::cast<py::tuple>(result);
    for (size_t i = 0; i < returns.size(); ++i)
        stack->push_back(torch::jit::toIValue(several[i], returns[i].real_type()));
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
