// SPDX-License-Identifier: Apache-2.0
// torch's values as values of a trace (ulpscope/value.h), which writing.h writes. An
// argument's schema type decides where its IValue is a bare integer (dtype).
#include "intercept.h"

#include <ATen/autocast_mode.h>
#include <c10/core/ScalarType.h>

namespace intercept
{

namespace
{

usc_value of_kind(usc_value_kind kind)
{
    usc_value value = {};
    value.kind = kind;
    return value;
}

usc_value named(usc_value_kind kind, const char *text)
{
    usc_value value = of_kind(kind);
    value.text = text;
    return value;
}

usc_value of_int(int64_t integer)
{
    usc_value value = of_kind(USC_VALUE_INT);
    value.integer = integer;
    return value;
}

usc_value of_bool(bool truth)
{
    usc_value value = of_kind(USC_VALUE_BOOL);
    value.truth = truth;
    return value;
}

usc_value of_double(double number)
{
    usc_value value = of_kind(USC_VALUE_FLOAT);
    value.number[0] = number;
    return value;
}

usc_value of_complex(c10::complex<double> number)
{
    usc_value value = of_kind(USC_VALUE_COMPLEX);
    value.number[0] = number.real();
    value.number[1] = number.imag();
    return value;
}

usc_value of_tensor(const at::Tensor &t)
{
    return of_kind(t.defined() ? USC_VALUE_TENSOR : USC_VALUE_NONE);
}

/* A zero in a text is none that JSON of a trace holds. */
usc_value of_text(const std::string &text)
{
    const bool whole = text.find('\0') == std::string::npos;
    return named(whole ? USC_VALUE_TEXT : USC_VALUE_OTHER, whole ? text.c_str() : "str");
}

} // namespace

const char *layout_name(int64_t value)
{
    switch (static_cast<at::Layout>(value)) {
    case at::kStrided:
        return "strided";
    case at::kSparse:
        return "sparse_coo";
    case at::kSparseCsr:
        return "sparse_csr";
    case at::kSparseCsc:
        return "sparse_csc";
    case at::kSparseBsr:
        return "sparse_bsr";
    case at::kSparseBsc:
        return "sparse_bsc";
    case at::kMkldnn:
        return "_mkldnn";
    default:
        return "jagged";
    }
}

namespace
{

const char *memory_format_name(int64_t value)
{
    switch (static_cast<at::MemoryFormat>(value)) {
    case at::MemoryFormat::Preserve:
        return "preserve_format";
    case at::MemoryFormat::ChannelsLast:
        return "channels_last";
    case at::MemoryFormat::ChannelsLast3d:
        return "channels_last_3d";
    default:
        return "contiguous_format";
    }
}

void put(Arguments &out, const usc_value &value)
{
    usc_writing_value(&out, &value);
}

void put_integer(Arguments &out, int64_t value, Spelling spelling)
{
    switch (spelling) {
    case Spelling::plain:
        put(out, of_int(value));
        break;
    case Spelling::dtype: {
        const std::string name(dtype_names(static_cast<at::ScalarType>(value)).first);
        put(out, named(USC_VALUE_DTYPE, name.c_str()));
        break;
    }
    case Spelling::layout:
        put(out, named(USC_VALUE_LAYOUT, layout_name(value)));
        break;
    case Spelling::memory_format:
        put(out, named(USC_VALUE_MEMORY_FORMAT, memory_format_name(value)));
        break;
    }
}

bool put_value(Arguments &out, const IValue &value, Spelling spelling);

/* Lists of lists of tensors are flattened, as the descriptors number them. */
bool put_items(Arguments &out, const IValue &list, Spelling spelling)
{
    if (list.isTensorList()) {
        for (const at::Tensor &t : list.toTensorList())
            put(out, of_tensor(t));
        return true;
    }
    if (list.isIntList()) {
        for (const int64_t item : list.toIntList())
            put_integer(out, item, spelling);
        return true;
    }
    for (const IValue &item : list.toListRef())
        if (!(item.isTensorList() ? put_items(out, item, spelling)
                                  : put_value(out, item, spelling)))
            return false;
    return true;
}

bool put_value(Arguments &out, const IValue &value, Spelling spelling)
{
    if (value.isTensor()) {
        put(out, of_tensor(value.toTensor()));
    } else if (value.isNone()) {
        put(out, of_kind(USC_VALUE_NONE));
    } else if (value.isBool()) {
        put(out, of_bool(value.toBool()));
    } else if (value.isInt()) {
        put_integer(out, value.toInt(), spelling);
    } else if (value.isDouble()) {
        put(out, of_double(value.toDouble()));
    } else if (value.isComplexDouble()) {
        put(out, of_complex(value.toComplexDouble()));
    } else if (value.isString()) {
        put(out, of_text(value.toStringRef()));
    } else if (value.isList()) {
        usc_writing_open(&out, USC_VALUE_LIST);
        if (!put_items(out, value, spelling)) return false;
        usc_writing_close(&out, USC_VALUE_LIST);
    } else if (value.isDevice()) {
        put(out, named(USC_VALUE_DEVICE, value.toDevice().str().c_str()));
    } else if (value.isGenerator()) {
        put(out, named(USC_VALUE_GENERATOR, value.toGenerator().device().str().c_str()));
    } else if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) {
        return false;
    } else {
        put(out, named(USC_VALUE_OTHER, describe_object(value).c_str()));
    }
    return true;
}

c10::Device device_among(const IValue *values, size_t n)
{
    c10::Device found(at::kCPU);
    for (size_t i = n; i-- > 0;) {
        if (values[i].isDevice()) return values[i].toDevice();
        if (values[i].isTensor() && values[i].toTensor().defined())
            found = values[i].toTensor().device();
    }
    return found;
}

at::Generator generator_among(const IValue *values, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        if (values[i].isGenerator()) return values[i].toGenerator();
    return at::globalContext().defaultGenerator(device_among(values, n));
}

} // namespace

bool write_arguments(Arguments &out, const Operator &op, const IValue *values)
{
    const size_t n = op.arguments.size();
    TORCH_INTERNAL_ASSERT(values != nullptr || n == 0);
    size_t i = 0;
    usc_writing_begin(&out);
    for (; i < n && op.arguments[i].keyword.empty(); ++i)
        if (!put_value(out, values[i], op.arguments[i].spelling)) return false;
    usc_writing_names(&out);
    for (; i < n; ++i) {
        usc_writing_name(&out, op.arguments[i].keyword.c_str());
        if (!put_value(out, values[i], op.arguments[i].spelling)) return false;
    }
    return usc_writing_end(&out) != nullptr;
}

/* The seed, not the state: a random operator is judged by its statistics. As text: it has
 * 64 bits without sign, more than readers of JSON take for a number. */
std::string random_state(const IValue *values, size_t n)
{
    try {
        const at::Generator given = generator_among(values, n);
        if (!given.defined()) return {};
        return "{\"rng\": {\"device\": \"" + given.device().str() + "\", \"seed\": \"" +
               std::to_string(given.current_seed()) + "\"}}";
    } catch (const std::exception &) {
        return {}; /* a device without a default generator has no seed to tell */
    }
}

/* ---- autocast: its header brings all of torch's functions, so that no other file has it ---- */

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 4
static bool is_autocast_on(c10::DeviceType type)
{
    switch (type) {
    case at::kCPU:
        return at::autocast::is_cpu_enabled();
    case at::kCUDA:
        return at::autocast::is_enabled();
    case at::kXPU:
        return at::autocast::is_xpu_enabled();
    case at::kPrivateUse1:
        return at::autocast::is_privateuseone_enabled();
    default:
        return false;
    }
}

static at::ScalarType autocast_dtype(c10::DeviceType type)
{
    switch (type) {
    case at::kCPU:
        return at::autocast::get_autocast_cpu_dtype();
    case at::kXPU:
        return at::autocast::get_autocast_xpu_dtype();
    case at::kPrivateUse1:
        return at::autocast::get_autocast_privateuseone_dtype();
    default:
        return at::autocast::get_autocast_gpu_dtype();
    }
}
#else
static bool is_autocast_on(c10::DeviceType type)
{
    return at::autocast::is_autocast_enabled(type);
}

static at::ScalarType autocast_dtype(c10::DeviceType type)
{
    return at::autocast::get_autocast_dtype(type);
}
#endif

std::string autocast_state()
{
    std::string out;
    for (const c10::DeviceType type : {at::kCPU, at::kCUDA, at::kXPU, at::kPrivateUse1}) {
        if (!is_autocast_on(type)) continue;
        out += out.empty() ? "{\"autocast\": {" : ", ";
        out += '"' + c10::DeviceTypeName(type, true) + "\": \"";
        out += dtype_names(autocast_dtype(type)).first;
        out += '"';
    }
    return out.empty() ? out : out + "}}";
}

} // namespace intercept
