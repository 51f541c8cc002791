// SPDX-License-Identifier: Apache-2.0
// Arguments as JSON: {"args": [...], "kwargs": {...}}, each value as
// docs/reference/trace-format.md says. An argument's schema type decides where its IValue
// is a bare integer (dtype).
#include "intercept.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/ScalarType.h>

#include <charconv>
#include <cmath>

namespace intercept
{

namespace
{

void put_string(std::string &out, const std::string &text)
{
    static const char digits[] = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += digits[byte >> 4];
            out += digits[byte & 15];
        } else {
            out += c;
        }
    }
    out += '"';
}

void put_mark(std::string &out, const char *kind, const std::string &value)
{
    out += "{\"";
    out += kind;
    out += "\": ";
    put_string(out, value);
    out += '}';
}

void put_int(std::string &out, int64_t value)
{
    char text[24];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    out.append(text, end);
}

/* The shortest text that reads back as the same double, always recognisable as a float.
 */
void put_number(std::string &out, double value)
{
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    const std::string_view shortest(text, static_cast<size_t>(end - text));
    out += shortest;
    if (shortest.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void put_double(std::string &out, double value)
{
    if (std::isfinite(value))
        put_number(out, value);
    else
        put_mark(out, "float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

void put_part(std::string &out, double value)
{
    if (std::isfinite(value))
        put_number(out, value);
    else
        put_string(out, std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
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

void put_integer(std::string &out, int64_t value, Spelling spelling)
{
    switch (spelling) {
    case Spelling::plain:
        put_int(out, value);
        break;
    case Spelling::dtype:
        put_mark(out, "dtype", dtype_names(static_cast<at::ScalarType>(value)).first);
        break;
    case Spelling::layout:
        put_mark(out, "layout", layout_name(value));
        break;
    case Spelling::memory_format:
        put_mark(out, "memory_format", memory_format_name(value));
        break;
    }
}

void put_complex(std::string &out, c10::complex<double> value)
{
    out += "{\"complex\": [";
    put_part(out, value.real());
    out += ", ";
    put_part(out, value.imag());
    out += "]}";
}

bool holds_list_of_tensors(const IValue &value)
{
    if (!value.isList() || value.isTensorList()) return false;
    for (const IValue &item : value.toListRef())
        if (item.isTensorList()) return true;
    return false;
}

bool put_value(std::string &out, const IValue &value, Spelling spelling);

/* Lists of lists of tensors are flattened, as the descriptors number them. */
bool put_items(std::string &out, const IValue &list, Spelling spelling, bool *first)
{
    for (const IValue &item : list.toListRef()) {
        if (item.isTensorList()) {
            if (!put_items(out, item, spelling, first)) return false;
            continue;
        }
        if (!*first) out += ", ";
        *first = false;
        if (!put_value(out, item, spelling)) return false;
    }
    return true;
}

bool put_list(std::string &out, const IValue &value, Spelling spelling)
{
    bool first = true;
    out += '[';
    if (value.isTensorList()) {
        for (const at::Tensor &t : value.toTensorList()) {
            if (!first) out += ", ";
            first = false;
            out += t.defined() ? "{\"tensor\": true}" : "null";
        }
    } else if (value.isIntList()) {
        for (const int64_t item : value.toIntList()) {
            if (!first) out += ", ";
            first = false;
            put_integer(out, item, spelling);
        }
    } else if (holds_list_of_tensors(value) || value.isList()) {
        if (!put_items(out, value, spelling, &first)) return false;
    }
    out += ']';
    return true;
}

bool put_value(std::string &out, const IValue &value, Spelling spelling)
{
    if (value.isTensor())
        out += value.toTensor().defined() ? "{\"tensor\": true}" : "null";
    else if (value.isNone())
        out += "null";
    else if (value.isBool())
        out += value.toBool() ? "true" : "false";
    else if (value.isInt())
        put_integer(out, value.toInt(), spelling);
    else if (value.isDouble())
        put_double(out, value.toDouble());
    else if (value.isComplexDouble())
        put_complex(out, value.toComplexDouble());
    else if (value.isString())
        put_string(out, value.toStringRef());
    else if (value.isList())
        return put_list(out, value, spelling);
    else if (value.isDevice())
        put_mark(out, "device", value.toDevice().str());
    else if (value.isGenerator())
        out += "{\"generator\": true}";
    else if (value.isSymInt() || value.isSymFloat() || value.isSymBool())
        return false;
    else
        put_mark(out, "other", describe_object(value));
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

bool write_arguments(std::string &out, const Operator &op, const IValue *values)
{
    const size_t n = op.arguments.size();
    size_t i = 0;
    out = "{\"args\": [";
    for (; i < n && op.arguments[i].keyword.empty(); ++i) {
        if (i != 0) out += ", ";
        if (!put_value(out, values[i], op.arguments[i].spelling)) return false;
    }
    out += "], \"kwargs\": {";
    for (size_t first = i; i < n; ++i) {
        if (i != first) out += ", ";
        put_string(out, op.arguments[i].keyword);
        out += ": ";
        if (!put_value(out, values[i], op.arguments[i].spelling)) return false;
    }
    out += "}}";
    return true;
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

std::string autocast_state()
{
    std::string out;
    for (const c10::DeviceType type : {at::kCPU, at::kCUDA, at::kXPU, at::kPrivateUse1}) {
        if (!is_autocast_on(type)) continue;
        out += out.empty() ? "{\"autocast\": {" : ", ";
        put_string(out, c10::DeviceTypeName(type, true));
        out += ": ";
        put_string(out, dtype_names(autocast_dtype(type)).first);
    }
    return out.empty() ? out : out + "}}";
}

} // namespace intercept
