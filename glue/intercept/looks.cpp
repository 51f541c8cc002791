// SPDX-License-Identifier: Apache-2.0
// Tensors looked at on their device; see looks.h. Of every tensor the smallest and the
// largest element, in one pass, where NaN comes before all; of results also how many are
// up to +Inf, the largest number and -Inf, which is one comparison and one sum.
#include "looks.h"

#include <torch/csrc/python_headers.h>

#include <ATen/Dispatch.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/le.h>
#include <ATen/ops/sum.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace intercept
{

namespace
{

constexpr size_t ROWS = 4096;     /* of a block */
constexpr size_t MOST_SENT = 16;  /* blocks on their way: then the oldest is waited for */
constexpr int64_t PART = 4 << 20; /* elements that are compared at once, or */
constexpr int64_t MOST_PARTS = 64; /* this part of a tensor */
constexpr double INF = std::numeric_limits<double>::infinity();

at::ScalarType type_of(const usc_capture_tensor &t)
{
    static const auto table = [] {
        std::map<std::string, at::ScalarType> types;
        for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
            const auto type = static_cast<at::ScalarType>(i);
            try {
                types.emplace(dtype_names(type).first, type);
            } catch (const std::exception &) { /* a number that torch left unused */
            }
        }
        return types;
    }();
    const auto found = table.find(t.dtype_name);
    TORCH_CHECK(found != table.end(), t.dtype_name);
    return found->second;
}

/* The tensor's elements in memory, each once, with no mode's marks on them. */
at::Tensor elements_of(const usc_capture_tensor &t, int64_t *repeats)
{
    auto impl = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        static_cast<c10::StorageImpl *>(t.storage));
    std::vector<int64_t> sizes(t.view.sizes, t.view.sizes + t.view.ndim);
    const std::vector<int64_t> strides(t.view.strides, t.view.strides + t.view.ndim);
    *repeats = 1;
    for (size_t i = 0; i < sizes.size(); ++i)
        if (strides[i] == 0 && sizes[i] > 1) {
            *repeats *= sizes[i];
            sizes[i] = 1;
        }
    const auto options = at::TensorOptions().dtype(type_of(t)).device(impl->device());
    at::Tensor x = at::empty({0}, options);
    x.set_(c10::Storage(std::move(impl)), t.offset, sizes, strides);
    return x.dim() == 0 ? x.unsqueeze(0) : x;
}

int64_t numel_of(const usc_capture_tensor &t)
{
    int64_t n = 1;
    for (int i = 0; i < t.view.ndim; ++i)
        n *= t.view.sizes[i];
    return n;
}

/* Parts of a tensor along its longest axis. */
std::vector<at::Tensor> parts_of(const at::Tensor &x)
{
    const int64_t n = std::min((x.numel() + PART - 1) / PART, MOST_PARTS);
    if (n <= 1) return {x};
    const auto sizes = x.sizes();
    const auto longest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
    return x.chunk(n, longest);
}

bool is_compared(at::ScalarType type)
{
    return type == at::kHalf || type == at::kBFloat16 || type == at::kFloat ||
           type == at::kDouble;
}

at::Tensor on_host(at::IntArrayRef sizes, at::ScalarType type)
{
    const auto options = at::TensorOptions().dtype(type);
    try {
        return at::empty(sizes, options.pinned_memory(true));
    } catch (const std::exception &) { /* a device that knows no such memory */
        return at::empty(sizes, options);
    }
}

/* Rows are written behind what made them, also where the program is in inference mode by
 * then, or was. */
class Plain
{
    std::optional<c10::InferenceMode> mode_;

  public:
    Plain()
    {
        if (c10::InferenceMode::is_enabled()) mode_.emplace(false);
    }
};

/* A lock under which operators of a device run: their kernels may be Python's, and wait
 * for the GIL, which is not kept while the lock is waited for. */
class Held
{
    std::unique_lock<std::mutex> lock_;

  public:
    explicit Held(std::mutex &mutex) : lock_(mutex, std::try_to_lock)
    {
        if (lock_.owns_lock()) return;
        PyThreadState *const python = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
        lock_.lock();
        if (python != nullptr) PyEval_RestoreThread(python);
    }
};

struct All {
    std::mutex mutex;
    std::map<const usc_capture *, std::shared_ptr<Looks>> of;
};

All &all()
{
    static All *const instance = new All;
    return *instance;
}

} // namespace

/* ---- on the device ---- */

Looks::Lane &Looks::lane_of(c10::Device device)
{
    const c10::Stream stream = usc_glue::current_stream(device);
    for (Lane &lane : lanes_)
        if (lane.stream == stream) return lane;
    return lanes_.emplace_back(Lane{stream, {}, {}, {}});
}

const at::Tensor &Looks::ends_of(Lane &lane, at::ScalarType type)
{
    at::Tensor &ends = lane.ends[type];
    if (ends.defined()) return ends;
    const double largest =
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "looks", [] {
            return static_cast<double>(std::numeric_limits<scalar_t>::max());
        });
    /* filled there: a copy from the host could wait */
    ends = at::empty({3}, at::TensorOptions().dtype(type).device(lane.stream.device()));
    ends.select(0, 0).fill_(INF);
    ends.select(0, 1).fill_(largest);
    ends.select(0, 2).fill_(-INF);
    return ends;
}

/* A row of the block for a part of a tensor. */
void Looks::count(Lane &lane, const at::Tensor &part, size_t row, bool counted)
{
    TORCH_INTERNAL_ASSERT(row < ROWS);
    Block &b = lane.block;
    const auto at = static_cast<int64_t>(row);
    const at::ScalarType type = part.scalar_type();
    const bool converted = at::isFloatingType(type) && !is_compared(type);
    const at::Tensor x = converted ? part.to(at::kFloat) : part;
    Extremes &extremes = b.extremes[x.scalar_type()];
    if (!extremes.there.defined())
        extremes.there = at::empty({2, static_cast<int64_t>(ROWS)}, x.options());
    at::Tensor min = extremes.there.select(0, 0).select(0, at);
    at::Tensor max = extremes.there.select(0, 1).select(0, at);
    at::aminmax_out(min, max, x, {}, false);
    if (!counted) return;
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()) + 1, 1), axes;
    shape[0] = 3;
    for (int64_t i = 1; i <= x.dim(); ++i)
        axes.push_back(i);
    const at::Tensor below =
        at::le(x.unsqueeze(0), ends_of(lane, x.scalar_type()).view(shape));
    at::Tensor counts = b.counts.select(0, at);
    at::sum_out(counts, below.view(at::kByte), axes, false, at::kLong);
}

/* Nothing is left of one that throws. */
bool Looks::look_at(const usc_capture_tensor &t, int64_t look)
{
    const int64_t n = numel_of(t);
    if (n == 0) {
        known_.push_back({look, {}});
        return true;
    }
    int64_t repeats = 1;
    const at::Tensor x = elements_of(t, &repeats);
    const c10::OptionalDeviceGuard guard(x.device());
    Lane &lane = lane_of(x.device());
    const std::vector<at::Tensor> parts = parts_of(x);
    if (lane.block.used + parts.size() > ROWS) send(lane);
    Block &b = lane.block;
    if (!b.counts.defined() && !lane.idle.empty()) {
        b = std::move(lane.idle.back());
        lane.idle.pop_back();
    }
    if (!b.counts.defined())
        b.counts = at::empty({static_cast<int64_t>(ROWS), 3},
                             at::TensorOptions().device(x.device()).dtype(at::kLong));
    const bool counted = t.role != USC_ROLE_IN && at::isFloatingType(x.scalar_type());
    for (size_t i = 0; i < parts.size(); ++i)
        count(lane, parts[i], b.used + i, counted);
    const at::ScalarType type = x.scalar_type();
    const bool converted = at::isFloatingType(type) && !is_compared(type);
    b.entries.push_back(
        {look, b.used, parts.size(), n, repeats, converted ? at::kFloat : type, counted});
    b.used += parts.size();
    return true;
}

void Looks::take(Tensors &tensors, size_t n, bool views)
{
    const Held lock(mutex_);
    const Plain plain;
    const OutOfSight here;
    for (size_t i = 0; i < n; ++i) {
        usc_capture_tensor &t = tensors[i];
        t.look = 0;
        if (t.storage == nullptr || t.base != nullptr || t.storage_size == 0) continue;
        t.look = -1;
        if (t.unread || (views && t.role == USC_ROLE_OUT) ||
            t.view.dtype == USC_DTYPE_NONE)
            continue;
        try {
            t.look = look_at(t, last_ + 1) ? ++last_ : 0;
        } catch (const std::exception &) {
            t.look = 0;
        }
    }
    if (known_.size() > ROWS) receive(false);
}

/* ---- to the host ---- */

void Looks::send(Lane &lane)
{
    if (lane.block.used == 0) return;
    sent_.push_back({&lane, std::move(lane.block)});
    lane.block = {};
    Block &b = sent_.back().block;
    const auto used = static_cast<int64_t>(b.used);
    try {
        const c10::OptionalStreamGuard guard(lane.stream);
        if (!b.host_counts.defined())
            b.host_counts = on_host(b.counts.sizes(), at::kLong);
        b.host_counts.narrow(0, 0, used).copy_(b.counts.narrow(0, 0, used), true);
        for (auto &[type, e] : b.extremes) {
            if (!e.here.defined()) e.here = on_host(e.there.sizes(), type);
            e.here.copy_(e.there, true);
        }
        b.come.emplace(lane.stream.device_type());
        b.come->record(lane.stream);
    } catch (const std::exception &) { /* what they hold is not known then */
        b.come.reset();
    }
    receive(false);
}

/* One that has come, with its numbers as doubles. */
usc_looked Looks::read(const Block &block, const Entry &e) const
{
    usc_looked out = {e.look, {}};
    usc_range &r = out.range;
    const Extremes &extremes = block.extremes.at(e.type);
    const auto *min = extremes.numbers.const_data_ptr<double>(), *max = min + ROWS;
    const auto *counts = block.host_counts.const_data_ptr<int64_t>();
    int64_t below[3] = {0, 0, 0};
    r.n = e.n;
    r.min = INF;
    r.max = -INF;
    bool any_nan = false;
    for (size_t row = e.first; row < e.first + e.n_rows; ++row) {
        any_nan |= std::isnan(min[row]) || std::isnan(max[row]);
        r.min = std::min(r.min, min[row]);
        r.max = std::max(r.max, max[row]);
        for (size_t i = 0; i < 3; ++i)
            below[i] += counts[3 * row + i] * e.repeats;
    }
    if (any_nan) r.min = r.max = std::numeric_limits<double>::quiet_NaN();
    if (!e.counted) {
        r.n_nan = any_nan ? USC_COUNT_SOME : 0;
        r.n_pos_inf = r.max == INF ? USC_COUNT_SOME : 0;
        r.n_neg_inf = r.min == -INF ? USC_COUNT_SOME : 0;
        return out;
    }
    r.n_nan = e.n - below[0];
    r.n_pos_inf = below[0] - below[1];
    r.n_neg_inf = below[2];
    const bool agree = (r.n_nan > 0) == any_nan && r.n_nan >= 0 && r.n_pos_inf >= 0 &&
                       r.n_neg_inf >= 0 && r.n_neg_inf <= below[1];
    if (!agree) r.n = -1; /* a device that cannot count */
    return out;
}

void Looks::receive(bool wait)
{
    while (!sent_.empty()) {
        Sent &first = sent_.front();
        Block &b = first.block;
        bool come = false;
        try {
            if (b.come && (wait || sent_.size() > MOST_SENT)) older::wait_for(*b.come, 0);
            come = b.come && b.come->query();
            if (b.come && !come) break;
        } catch (const std::exception &) { /* the device has failed */
        }
        for (auto &[type, e] : b.extremes)
            if (come) e.numbers = e.here.to(at::kDouble);
        for (const Entry &e : b.entries) {
            known_.push_back(come ? read(b, e) : usc_looked{e.look, {}});
            if (!come) known_.back().range.n = -1; /* nobody will know */
        }
        b.entries.clear();
        b.used = 0;
        b.come.reset();
        if (come) first.lane->idle.push_back(std::move(b));
        sent_.pop_front();
    }
    if (known_.empty()) return;
    usc_capture_looked(capture_, known_.data(), static_cast<int64_t>(known_.size()));
    known_.clear();
}

void Looks::settle(bool wait)
{
    const Held lock(mutex_);
    const Plain plain;
    const OutOfSight here;
    for (Lane &lane : lanes_)
        send(lane);
    receive(wait);
}

/* ---- of the sessions ---- */

std::shared_ptr<Looks> looks_of(const usc_capture *c, bool make)
{
    std::lock_guard<std::mutex> lock(all().mutex);
    const auto found = all().of.find(c);
    if (found != all().of.end()) return found->second;
    if (!make) return nullptr;
    return all().of[c] = std::make_shared<Looks>(const_cast<usc_capture *>(c));
}

void look_at(const Session &session, Tensors &tensors, size_t n, bool views)
{
    if (session.looks != nullptr) {
        session.looks->take(tensors, n, views);
        return;
    }
    for (size_t i = 0; i < n; ++i)
        tensors[i].look = 0;
}

void look_past(const Session &session, Tensors &tensors)
{
    for (usc_capture_tensor &t : tensors)
        t.look = session.looks != nullptr && t.base == nullptr ? -1 : 0;
}

void forget_looks(const usc_capture *c)
{
    std::shared_ptr<Looks> last; /* its memory goes without the lock */
    std::lock_guard<std::mutex> lock(all().mutex);
    const auto found = all().of.find(c);
    if (found == all().of.end()) return;
    last = std::move(found->second);
    all().of.erase(found);
}

} // namespace intercept
