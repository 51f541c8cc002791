// SPDX-License-Identifier: Apache-2.0
// Memory, devices, streams, events and generators of the simulated accelerator, as torch
// asks for them. What only some torch asks for stands without `override`: where torch
// asks, it is the answer, where not, nobody calls it.
#include "../torch_private_device.h"
#include "sim_glue.h"

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>
#if __has_include(<c10/core/CachingDeviceAllocator.h>)
#include <c10/core/CachingDeviceAllocator.h>
#define HAS_STATS
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

namespace c10
{
struct DeviceAllocator; // newer torch defines it
}

namespace usc_sim
{

std::atomic<bool> used_other_threads{false};

namespace
{

const std::thread::id loading_thread = std::this_thread::get_id();

// Autograd's device threads choose their device when they start.
void note_thread()
{
    if (std::this_thread::get_id() != loading_thread) used_other_threads = true;
}

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

thread_local DeviceIndex current = 0;

Device with_index(Device device)
{
    return device.has_index() ? device : Device(DEVICE, current);
}

// torch's number of a stream is the device's.
usc_sim_stream of(const Stream &s)
{
    return {s.device_index(), s.id()};
}

Stream to_torch(usc_sim_stream s)
{
    return Stream(Stream::UNSAFE, Device(DEVICE, static_cast<DeviceIndex>(s.device)),
                  s.id);
}

void record_stream(const c10::DataPtr &data, const Stream &stream)
{
    usc_error err{};
    if (data.get() != nullptr)
        check(usc_sim_record_stream(data.get(), of(stream), &err), err);
}

// ---- memory

template <typename T, typename = void> struct IsThere : std::false_type {
};
template <typename T>
struct IsThere<T, std::void_t<decltype(sizeof(T))>> : std::true_type {
};
using AllocatorOfDevices = std::conditional_t<IsThere<c10::DeviceAllocator>::value,
                                              c10::DeviceAllocator, c10::Allocator>;
using Mempool = std::pair<unsigned long long, unsigned long long>; // c10::MempoolId_t

void tell_profiler(void *p, int64_t size)
{
    const int device = usc_sim_device_of(p);
    const usc_sim_stats s = usc_sim_memory_stats(device);
    c10::reportMemoryUsageToProfiler(p, size, static_cast<size_t>(s.allocated_size),
                                     static_cast<size_t>(s.reserved_size),
                                     Device(DEVICE, static_cast<DeviceIndex>(device)));
}

void free_block(void *p)
{
    const size_t size = c10::memoryProfilingEnabled() ? usc_sim_size_of(p) : 0;
    usc_sim_free(p);
    if (size > 0) tell_profiler(p, -static_cast<int64_t>(size));
}

class DeviceMemory final : public AllocatorOfDevices
{
  public:
    c10::DataPtr allocate(size_t size)
    {
        return allocate_on(current, size);
    }
    c10::DataPtr allocate(size_t size) const
    {
        return allocate_on(current, size);
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_block;
    }
    void copy_data(void *to, const void *from, size_t size) const
    {
        usc_error err{};
        check(usc_sim_open(to, USC_SIM_WRITE, &err), err);
        const usc_status status = usc_sim_open(from, USC_SIM_READ, &err);
        if (status == USC_OK) {
            std::memcpy(to, from, size);
            usc_sim_close(from, USC_SIM_READ);
        }
        usc_sim_close(to, USC_SIM_WRITE);
        check(status, err);
    }

    bool initialized()
    {
        return true;
    }
    void emptyCache(Mempool)
    {
        usc_sim_empty_cache();
    }
    void emptyCache()
    {
        usc_sim_empty_cache();
    }
    void recordStream(const c10::DataPtr &data, Stream stream)
    {
        record_stream(data, stream);
    }
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device)
    {
        size_t n_free = 0, total = 0;
        usc_sim_memory_info(device, &n_free, &total);
        return {n_free, total};
    }
#ifdef HAS_STATS
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device)
    {
        const usc_sim_stats s = usc_sim_memory_stats(device);
        c10::CachingDeviceAllocator::DeviceStats stats;
        stats.allocated_bytes[0].current = s.allocated_size;
        stats.allocated_bytes[0].peak = s.peak_size;
        stats.reserved_bytes[0].current = s.reserved_size;
        stats.reserved_bytes[0].peak = s.peak_reserved;
        stats.active_bytes[0].current = s.allocated_size + s.waiting_size;
        stats.requested_bytes[0].current = s.requested_size;
        stats.allocation[0].current = s.n_live;
        stats.allocation[0].allocated = s.n_allocs;
        stats.segment[0].current = s.n_segments;
        stats.num_alloc_retries = s.n_retries;
        stats.num_ooms = s.n_ooms;
        stats.num_device_alloc = s.n_maps;
        return stats;
    }
#endif
    void resetAccumulatedStats(DeviceIndex)
    {
    }
    void resetPeakStats(DeviceIndex device)
    {
        usc_sim_reset_peak(device);
    }
};

class PinnedMemory final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(size_t size)
    {
        return std::as_const(*this).allocate(size);
    }
    c10::DataPtr allocate(size_t size) const
    {
        void *p = usc_sim_host_malloc(size);
        TORCH_CHECK_WITH(OutOfMemoryError, p != nullptr, "sim: no pinned memory for ",
                         size, " bytes");
        return {p, p, usc_sim_host_free, Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return usc_sim_host_free;
    }
    void copy_data(void *to, const void *from, size_t size) const
    {
        std::memcpy(to, from, size);
    }
};

DeviceMemory &device_memory()
{
    static DeviceMemory *memory = new DeviceMemory; // outlives every tensor
    return *memory;
}

PinnedMemory &pinned_memory()
{
    static PinnedMemory *memory = new PinnedMemory;
    return *memory;
}

// ---- device guard, streams, events

class Guard final : public usc_glue::GuardInterface
{
  public:
    c10::DeviceType type() const override
    {
        return DEVICE;
    }
    Device getDevice() const override
    {
        return {DEVICE, current};
    }
    void setDevice(Device d) const override
    {
        note_thread();
        if (d.has_index()) set_current_device(d.index());
    }
    void uncheckedSetDevice(Device d) const noexcept override
    {
        note_thread();
        if (d.has_index()) current = d.index();
    }
    Device exchangeDevice(Device d) const override
    {
        const Device old(DEVICE, current);
        setDevice(d);
        return old;
    }
    DeviceIndex deviceCount() const noexcept override
    {
        return static_cast<DeviceIndex>(usc_sim_device_count());
    }

    // torch.Stream("sim") asks for device -1, the current one.
    Stream getStream(Device d) const noexcept override
    {
        return to_torch(usc_sim_stream_current(with_index(d).index()));
    }
    Stream getDefaultStream(Device d) const override
    {
        return Stream(Stream::DEFAULT, with_index(d));
    }
    Stream getNewStream(Device d, int priority) const
    {
        return to_torch(usc_sim_stream_next(with_index(d).index(), priority < 0));
    }
    Stream getStreamFromGlobalPool(Device d, bool high) const override
    {
        return getNewStream(d, high ? -1 : 0);
    }
    Stream exchangeStream(Stream s) const noexcept override
    {
        const Stream old = getStream(s.device());
        usc_sim_stream_set_current(of(s));
        return old;
    }
    bool queryStream(const Stream &stream) const override
    {
        return usc_sim_stream_query(of(stream));
    }
    void synchronizeStream(const Stream &stream) const override
    {
        usc_error err{};
        usc_sim_wait(stream.device_index());
        if (usc_sim_fault_early("sim::synchronize", stream.id())) return;
        check(usc_sim_stream_synchronize(of(stream), &err), err);
    }
    void synchronizeDevice(DeviceIndex device) const
    {
        usc_error err{};
        device = device < 0 ? current : device;
        usc_sim_wait(device);
        check(usc_sim_device_synchronize(device, &err), err);
    }
    void recordDataPtrOnStream(const c10::DataPtr &data,
                               const Stream &stream) const override
    {
        record_stream(data, stream);
    }

    void record(void **event, const Stream &stream, DeviceIndex,
                c10::EventFlag flag) const override
    {
        usc_error err{};
        if (*event == nullptr) {
            usc_sim_event *made = nullptr;
            const bool timing = flag == c10::EventFlag::BACKEND_DEFAULT;
            check(usc_sim_event_create(timing, &made, &err), err);
            *event = made;
        }
        check(usc_sim_event_record(event_of(*event), of(stream), &err), err);
    }
    void destroyEvent(void *event, DeviceIndex) const noexcept override
    {
        usc_sim_event_free(event_of(event));
    }
    void block(void *event, const Stream &stream) const override
    {
        usc_error err{};
        check(usc_sim_stream_wait(of(stream), event_of(event), &err), err);
    }
    bool queryEvent(void *event) const override
    {
        return usc_sim_event_query(event_of(event));
    }
    void synchronizeEvent(void *event) const
    {
        usc_error err{};
        usc_sim_wait(current);
        check(usc_sim_event_synchronize(event_of(event), &err), err);
    }
    double elapsedTime(void *from, void *to, DeviceIndex) const
    {
        usc_error err{};
        double ms = 0;
        check(usc_sim_event_elapsed(event_of(from), event_of(to), &ms, &err), err);
        return ms;
    }

  private:
    static usc_sim_event *event_of(void *event)
    {
        return static_cast<usc_sim_event *>(event);
    }
};

class Hooks final : public at::PrivateUse1HooksInterface
{
  public:
    bool isBuilt() const
    {
        return true;
    }
    bool isAvailable() const
    {
        return usc_sim_device_count() > 0;
    }
    bool hasPrimaryContext(DeviceIndex) const
    {
        return true;
    }
    DeviceIndex deviceCount() const
    {
        return static_cast<DeviceIndex>(usc_sim_device_count());
    }
    DeviceIndex getCurrentDevice() const
    {
        return current;
    }
    void setCurrentDevice(DeviceIndex d) const
    {
        set_current_device(d);
    }
    DeviceIndex exchangeDevice(DeviceIndex d) const
    {
        const DeviceIndex old = current;
        set_current_device(d);
        return old;
    }
    DeviceIndex maybeExchangeDevice(DeviceIndex d) const
    {
        return d < 0 ? current : exchangeDevice(d);
    }
    const at::Generator &getDefaultGenerator(DeviceIndex d) const
    {
        return default_generator(d);
    }
    const at::Generator &getDefaultGenerator(DeviceIndex d)
    {
        return default_generator(d);
    }
    at::Generator getNewGenerator(DeviceIndex d) const
    {
        return new_generator(d < 0 ? current : d);
    }
    Device getDeviceFromPtr(void *p) const
    {
        const int device = usc_sim_device_of(p);
        TORCH_CHECK(device >= 0, "sim: ", p, " is not device memory");
        return {DEVICE, static_cast<DeviceIndex>(device)};
    }
    bool isPinnedPtr(const void *p) const
    {
        return usc_sim_is_pinned(p);
    }
    c10::Allocator *getPinnedMemoryAllocator() const
    {
        return &pinned_memory();
    }
    void resizePrivateUse1Bytes(const c10::Storage &storage, size_t size) const
    {
        resize_storage(storage, size);
    }
};

} // namespace

void check(usc_status status, const usc_error &err)
{
    if (status == USC_E_NOMEM || status == USC_E_RANGE)
        TORCH_CHECK_WITH(OutOfMemoryError, false, err.text);
    TORCH_CHECK(status == USC_OK, err.text);
}

void check_dtype(c10::ScalarType dtype)
{
    if (!usc_sim_lacks(nullptr)) return;
    const std::string name = usc_glue::dtype_names(dtype).first;
    usc_sim_profile profile;
    usc_sim_profile_get(&profile);
    TORCH_CHECK(!usc_sim_lacks(name.c_str()), "sim: the device has no ", name,
                " (profile ", profile.text, ")");
}

void catch_up(c10::DeviceIndex device)
{
    usc_error err{};
    check(usc_sim_stream_synchronize(usc_sim_stream_current(device), &err), err);
}

c10::DeviceIndex current_device()
{
    return current;
}

void set_current_device(c10::DeviceIndex index)
{
    TORCH_CHECK(index >= 0 && index < usc_sim_device_count(), "sim: there is no device ",
                static_cast<int>(index), "; there are ", usc_sim_device_count());
    current = index;
}

c10::Allocator *allocator()
{
    return &device_memory();
}

c10::DataPtr allocate_on(c10::DeviceIndex device, size_t size)
{
    void *p = nullptr;
    usc_error err{};
    check(usc_sim_malloc(device, size, &p, &err), err);
    if (p != nullptr && c10::memoryProfilingEnabled())
        tell_profiler(p, static_cast<int64_t>(size));
    return {p, p, &free_block, Device(DEVICE, device)};
}

void resize_storage(const c10::Storage &storage, size_t size)
{
    TORCH_INTERNAL_ASSERT(storage.device().type() == DEVICE);
    catch_up(storage.device().index());
    c10::DataPtr fresh = allocate_on(storage.device().index(), size);
    const size_t kept = std::min(size, storage.nbytes());
    if (kept > 0) device_memory().copy_data(fresh.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
}

namespace
{

// Whether torch asks its hooks for a new generator: those of this kind of device answer.
template <class Some, class = void> constexpr bool asks_hooks = false;
template <class Some>
constexpr bool asks_hooks<Some, std::void_t<decltype(&Some::getNewGenerator)>> =
    std::is_same_v<decltype(&Some::getNewGenerator),
                   at::Generator (Some::*)(DeviceIndex) const>;

} // namespace

void register_runtime()
{
    static Hooks *hooks = new Hooks;
    static Guard *guard = new Guard;
    c10::SetAllocator(DEVICE, allocator());
    usc_glue::register_guard(DEVICE, guard);
    at::RegisterPrivateUse1HooksInterface(hooks);
    if (!asks_hooks<at::PrivateUse1HooksInterface>)
        usc_glue::register_generators(
            [](DeviceIndex d) { return hooks->getNewGenerator(d); });
}

} // namespace usc_sim
