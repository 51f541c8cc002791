// SPDX-License-Identifier: Apache-2.0
// Calls as JSON lines: what tensors they got and gave, with a signature of each, or
// values. A line is written when its call is over, by the thread that made it.
#include "reroute.h"

#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace intercept
{

struct Observer {
    std::mutex mutex;
    FILE *file = nullptr;
    int level = 1;
    int64_t length = 50, n_calls = 0;
    bool (*optimizer)(void) = nullptr;

    ~Observer()
    {
        if (file != nullptr) fclose(file);
    }
    bool signs() const
    {
        return level == 2 || level >= 5;
    }
    /* How many values of a tensor are shown; -1: all. */
    int64_t n_shown() const
    {
        return level == 3 || level == 5 ? length : level == 4 || level == 6 ? -1 : 0;
    }
};

namespace
{

void put_number(std::string &out, double value)
{
    char text[40];
    if (std::isnan(value) || std::isinf(value))
        snprintf(text, sizeof text, "\"%s\"",
                 std::isnan(value) ? "nan"
                 : value > 0       ? "inf"
                                   : "-inf");
    else
        snprintf(text, sizeof text, "%.9g", value);
    out += text;
}

void put_list(std::string &out, const char *name, at::IntArrayRef numbers)
{
    out += std::string(", \"") + name + "\": [";
    for (size_t i = 0; i < numbers.size(); ++i)
        out += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
    out += ']';
}

constexpr int LANES = 16;

/* The glue is compiled in a hurry (-O1); this loop reads every element. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

/* One pass over the elements; NaN and Inf are counted and take no part in the rest. Sums
 * run in lanes, which compilers put side by side. */
struct Signature {
    int64_t n = 0, n_nan = 0, n_inf = 0, n_finite = 0;
    double min = NAN, max = NAN, sum = 0, sum_abs = 0, mean = 0, std = NAN;
    double below = NAN, above = NAN; /* nearest to zero on each side of it */

    template <class T> void take(const T *data, int64_t n_)
    {
        constexpr T inf = std::numeric_limits<T>::infinity();
        T low[LANES], high[LANES], under[LANES], over[LANES];
        double add[LANES] = {}, size[LANES] = {}, square[LANES] = {};
        int32_t nan[LANES] = {}, odd[LANES] = {};
        for (int k = 0; k < LANES; ++k) {
            low[k] = over[k] = inf;
            high[k] = under[k] = -inf;
        }
        n = n_;
        const T shift = middle(data, n);
        int64_t i = 0;
        const auto step = [&](int k, T v) {
            const T away = v < 0 ? -v : v;
            const bool finite = away < inf;
            const T kept = finite ? v : shift;
            nan[k] += v != v;
            odd[k] += !finite;
            low[k] = finite && v < low[k] ? v : low[k];
            high[k] = finite && v > high[k] ? v : high[k];
            over[k] = v > 0 && v < over[k] ? v : over[k];
            under[k] = v < 0 && v > under[k] ? v : under[k];
            const double d = static_cast<double>(kept) - static_cast<double>(shift);
            add[k] += d;
            square[k] += d * d;
            size[k] += finite ? static_cast<double>(away) : 0.0;
        };
        for (; i + LANES <= n; i += LANES)
            for (int k = 0; k < LANES; ++k)
                step(k, data[i + k]);
        for (; i < n; ++i)
            step(0, data[i]);
        double moved = 0, squares = 0;
        T least = inf, most = -inf, next = inf, last = -inf;
        for (int k = 0; k < LANES; ++k) {
            n_nan += nan[k];
            n_inf += odd[k] - nan[k];
            moved += add[k];
            squares += square[k];
            sum_abs += size[k];
            least = std::min(least, low[k]);
            most = std::max(most, high[k]);
            next = std::min(next, over[k]);
            last = std::max(last, under[k]);
        }
        n_finite = n - n_nan - n_inf;
        const double count = static_cast<double>(n_finite);
        if (n_finite == 0) return;
        min = least;
        max = most;
        if (next < inf) above = next;
        if (last > -inf) below = last;
        mean = static_cast<double>(shift) + moved / count;
        sum = static_cast<double>(shift) * count + moved;
        if (n_finite > 1)
            std = std::sqrt(std::max(0.0, squares - moved * moved / count) / (count - 1));
    }

    /* A finite element: sums of what is near to it cancel less. */
    template <class T> static T middle(const T *data, int64_t n)
    {
        for (int64_t i = 0; i < n; ++i)
            if (std::isfinite(data[i])) return data[i];
        return 0;
    }

    void put(std::string &out) const
    {
        out += ", \"signature\": {\"n\": " + std::to_string(n) +
               ", \"n_nan\": " + std::to_string(n_nan) +
               ", \"n_inf\": " + std::to_string(n_inf);
        const std::pair<const char *, double> rows[] = {
            {"min", min},
            {"max", max},
            {"mean", n_finite > 0 ? mean : NAN},
            {"below_zero", below},
            {"above_zero", above},
            {"sum", sum},
            {"sum_abs", sum_abs},
            {"std", std}};
        for (const auto &[name, value] : rows) {
            out += std::string(", \"") + name + "\": ";
            put_number(out, value);
        }
        out += '}';
    }
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/* All elements in order, complex ones as two, in the host's memory: float32 where that
 * holds them, else float64. */
at::Tensor elements_of(const at::Tensor &t)
{
    at::Tensor here = t.detach().resolve_conj().resolve_neg();
    if (here.is_quantized()) here = here.dequantize();
    if (here.layout() != at::kStrided) here = here.to_dense();
    if (here.is_complex()) here = at::view_as_real(here);
    const at::ScalarType own = here.scalar_type();
    const bool small =
        own == at::kFloat || own == at::kHalf || own == at::kBFloat16 || own == at::kBool;
    return here.to(at::kCPU).to(small ? at::kFloat : at::kDouble).contiguous().view(-1);
}

void put_content(std::string &out, const Observer &o, const at::Tensor &t)
{
    if ((!o.signs() && o.n_shown() == 0) || t.is_meta()) return;
    const at::Tensor flat = elements_of(t);
    const bool small = flat.scalar_type() == at::kFloat;
    if (o.signs()) {
        Signature s;
        if (small)
            s.take(flat.const_data_ptr<float>(), flat.numel());
        else
            s.take(flat.const_data_ptr<double>(), flat.numel());
        s.put(out);
        if (t.scalar_type() == at::kBool)
            out += ", \"n_true\": " + std::to_string(static_cast<int64_t>(s.sum));
    }
    if (o.n_shown() == 0) return;
    const int64_t n =
        o.n_shown() < 0 ? flat.numel() : std::min(flat.numel(), o.n_shown());
    out += ", \"values\": [";
    for (int64_t i = 0; i < n; ++i) {
        if (i > 0) out += ", ";
        put_number(out, small ? static_cast<double>(flat.const_data_ptr<float>()[i])
                              : flat.const_data_ptr<double>()[i]);
    }
    out += ']';
}

void put_tensor(std::string &out, const Observer &o, const std::string &name,
                const at::Tensor &t)
{
    if (out.back() != '[') out += ", ";
    out += "{\"name\": \"" + name + "\", \"dtype\": \"" +
           dtype_names(t.scalar_type()).first + "\", \"device\": \"" + t.device().str() +
           "\"";
    put_list(out, "shape", t.sizes());
    if (t.layout() == at::kStrided) put_list(out, "stride", t.strides());
    try {
        put_content(out, o, t);
    } catch (const std::exception &) { /* what cannot be read is shown without */
        out += ", \"unread\": true";
    }
    out += '}';
}

void put_all(std::string &out, const Observer &o, const std::string &name,
             const IValue &value)
{
    std::vector<at::Tensor> found;
    each_tensor(value, [&](const at::Tensor &t) { found.push_back(t); });
    for (size_t i = 0; i < found.size(); ++i)
        put_tensor(out, o, value.isTensor() ? name : name + "[" + std::to_string(i) + "]",
                   found[i]);
}

} // namespace

std::shared_ptr<Observer> make_observer(const char *path, int level, int64_t length,
                                        bool (*optimizer)(void), std::string &why)
{
    auto o = std::make_shared<Observer>();
    o->file = fopen(path, "ae");
    if (o->file == nullptr) why = std::string(path) + ": " + strerror(errno);
    o->level = level;
    o->length = length;
    o->optimizer = optimizer;
    return o->file != nullptr ? o : nullptr;
}

void flush(Observer &o)
{
    const std::lock_guard<std::mutex> lock(o.mutex);
    (void)fflush(o.file);
}

std::string observed_before(const Observer &o, const Target &target, const IValue *values)
{
    TORCH_INTERNAL_ASSERT(values != nullptr || target.op.arguments.empty());
    Arguments args;
    std::string line = "\"op\": \"" + target.op.name + "\", \"phase\": \"";
    line += in_backward()                             ? "backward"
            : o.optimizer != nullptr && o.optimizer() ? "optimizer"
                                                      : "forward";
    line += "\", \"thread\": " + std::to_string(thread_number());
    if (write_arguments(args, target.op, values))
        line += std::string(", \"arguments\": ") + args.text;
    line += ", \"inputs\": [";
    const auto &schema = target.op.handle.schema().arguments();
    for (size_t i = 0; i < target.op.arguments.size(); ++i)
        put_all(line, o, schema[i].name(), values[i]);
    return line + "]";
}

void observed_after(Observer &o, const Target &target, std::string line,
                    const std::vector<std::pair<size_t, IValue>> &written,
                    const IValue *results)
{
    line += ", \"outputs\": [";
    const auto &schema = target.op.handle.schema();
    for (size_t i = 0; results != nullptr && i < target.op.n_returns; ++i)
        if (schema.returns()[i].alias_info() == nullptr || written.empty())
            put_all(line, o, "out[" + std::to_string(i) + "]", results[i]);
    for (const auto &[i, value] : written)
        put_all(line, o, schema.arguments()[i].name(), value);
    line += results != nullptr ? "]}\n" : "], \"failed\": true}\n";
    const std::lock_guard<std::mutex> lock(o.mutex);
    (void)fprintf(o.file, "{\"call\": %lld, ", static_cast<long long>(++o.n_calls));
    (void)fwrite(line.data(), 1, line.size(), o.file);
}

} // namespace intercept
