// SPDX-License-Identifier: Apache-2.0
// How large the elements of a device's tensors are and how many are no numbers, found out
// on the device: what is enqueued behind the program's own work writes a row each into
// memory of the device, and rows come to the host in blocks. Nobody waits but who asks.
#pragma once

#include "intercept.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <list>
#include <map>

namespace intercept
{

/* The rows of one session. Any thread may call; what is enqueued goes to the stream that
 * is the calling thread's on the tensor's device. */
class Looks
{
  public:
    explicit Looks(usc_capture *capture) : capture_(capture)
    {
    }

    /** Sets `look` of the first `n` tensors: those that lie on a device are looked at
     * now, but for what a call only makes a view of (with `views` its results, too). One
     * that the device cannot count in keeps 0: it is read. */
    void take(Tensors &tensors, size_t n, bool views);

    /** Sends what was counted so far to the host and hands the session what has come;
     * `wait`: all of it. */
    void settle(bool wait);

  private:
    /* What was counted of one tensor: `n_rows` rows, each of a part of it. */
    struct Entry {
        int64_t look;
        size_t first, n_rows;
        int64_t n;       /* elements, repeats counted */
        int64_t repeats; /* of each element in memory */
        at::ScalarType type;
        bool counted; /* else the extremes alone tell: of integers, and of inputs */
    };
    struct Extremes {
        at::Tensor there, here, numbers; /* [2, rows]: device, host, host as float64 */
    };
    struct Block {
        at::Tensor counts, host_counts; /* [rows, 3] */
        std::map<at::ScalarType, Extremes> extremes;
        std::vector<Entry> entries;
        size_t used = 0;
        std::optional<c10::Event> come;
    };
    /* A stream of a device. */
    struct Lane {
        c10::Stream stream;
        Block block;
        std::vector<Block> idle;
        std::map<at::ScalarType, at::Tensor> ends; /* what is counted up to */
    };
    struct Sent {
        Lane *lane;
        Block block;
    };

    bool look_at(const usc_capture_tensor &t, int64_t look);
    Lane &lane_of(c10::Device device);
    const at::Tensor &ends_of(Lane &lane, at::ScalarType type);
    void count(Lane &lane, const at::Tensor &part, size_t row, bool counted);
    void send(Lane &lane);
    void receive(bool wait);
    usc_looked read(const Block &block, const Entry &entry) const;

    std::mutex mutex_;
    usc_capture *capture_;
    int64_t last_ = 0;
    std::list<Lane> lanes_;
    std::deque<Sent> sent_;
    std::vector<usc_looked> known_; /* to be handed over */
};

/** The looks of a session; made where `make`, null where there are none. */
std::shared_ptr<Looks> looks_of(const usc_capture *c, bool make);
/** Lets go of them. */
void forget_looks(const usc_capture *c);

} // namespace intercept
