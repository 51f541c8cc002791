// SPDX-License-Identifier: Apache-2.0
// cub's loads, stores and sorts of a block whose threads have several items each.
#pragma once

#include "grid_cub.h"

#include <algorithm>
#include <numeric>

namespace cub
{

// ---- loads and stores: each thread has ITEMS that lie side by side

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

template <class T, int X, int K, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1, int Arch = 0>
class BlockLoad
{
  public:
    struct TempStorage {
    };
    BlockLoad() = default;
    explicit BlockLoad(TempStorage &)
    {
    }
    template <class In> void Load(In from, T (&items)[K])
    {
        for (int i = 0; i < K; i++)
            items[i] = from[place(i)];
    }
    template <class In> void Load(In from, T (&items)[K], int n_valid)
    {
        for (int i = 0; i < K; i++)
            if (place(i) < n_valid) items[i] = from[place(i)];
    }
    template <class In, class D>
    void Load(In from, T (&items)[K], int n_valid, D otherwise)
    {
        for (int i = 0; i < K; i++)
            items[i] = place(i) < n_valid ? (T)from[place(i)] : (T)otherwise;
    }

  private:
    static int place(int i)
    {
        const int t = (int)usc_grid_cxx::thread_number();
        return A == BLOCK_LOAD_STRIPED ? i * X * Y * Z + t : t * K + i;
    }
};

template <class T, int X, int K, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1, int Arch = 0>
class BlockStore
{
  public:
    struct TempStorage {
    };
    BlockStore() = default;
    explicit BlockStore(TempStorage &)
    {
    }
    template <class Out> void Store(Out to, T (&items)[K])
    {
        for (int i = 0; i < K; i++)
            to[place(i)] = items[i];
    }
    template <class Out> void Store(Out to, T (&items)[K], int n_valid)
    {
        for (int i = 0; i < K; i++)
            if (place(i) < n_valid) to[place(i)] = items[i];
    }

  private:
    static int place(int i)
    {
        const int t = (int)usc_grid_cxx::thread_number();
        return A == BLOCK_STORE_STRIPED ? i * X * Y * Z + t : t * K + i;
    }
};

// ---- sorts: stable, as cub's

template <class Key, int X, int K, class Value = NullType, int... More>
class BlockRadixSort
{
  public:
    struct TempStorage {
        Key key[X * K];
        Value value[X * K];
        int order[X * K];
        Key key_out[X * K];
        Value value_out[X * K];
    };

    explicit BlockRadixSort(TempStorage &s, const char *place = USC_GRID_CALLER)
        : s_(s), place_(place)
    {
    }
    void Sort(Key (&keys)[K], int = 0, int = sizeof(Key) * 8)
    {
        sort(keys, none(), false, false);
    }
    void SortDescending(Key (&keys)[K], int = 0, int = sizeof(Key) * 8)
    {
        sort(keys, none(), true, false);
    }
    void Sort(Key (&keys)[K], Value (&values)[K], int = 0, int = sizeof(Key) * 8)
    {
        sort(keys, values, false, false);
    }
    void SortDescending(Key (&keys)[K], Value (&values)[K], int = 0,
                        int = sizeof(Key) * 8)
    {
        sort(keys, values, true, false);
    }
    void SortBlockedToStriped(Key (&keys)[K], int = 0, int = sizeof(Key) * 8)
    {
        sort(keys, none(), false, true);
    }
    void SortBlockedToStriped(Key (&keys)[K], Value (&values)[K], int = 0,
                              int = sizeof(Key) * 8)
    {
        sort(keys, values, false, true);
    }

  private:
    using values = Value[K];
    values &none()
    {
        return unused_;
    }
    void sort(Key (&keys)[K], Value (&values)[K], bool down, bool striped)
    {
        const int t = (int)usc_grid_cxx::thread_number();
        for (int i = 0; i < K; i++) {
            s_.key[t * K + i] = keys[i];
            s_.value[t * K + i] = values[i];
        }
        usc_grid_cxx::meet_block(place_);
        if (t == 0) {
            std::iota(s_.order, s_.order + X * K, 0);
            std::stable_sort(s_.order, s_.order + X * K, [&](int a, int b) {
                return down ? s_.key[b] < s_.key[a] : s_.key[a] < s_.key[b];
            });
            for (int i = 0; i < X * K; i++) {
                s_.key_out[i] = s_.key[s_.order[i]];
                s_.value_out[i] = s_.value[s_.order[i]];
            }
        }
        usc_grid_cxx::meet_block(place_);
        for (int i = 0; i < K; i++) {
            const int from = striped ? i * X + t : t * K + i;
            keys[i] = s_.key_out[from];
            values[i] = s_.value_out[from];
        }
    }

    TempStorage &s_;
    const char *place_;
    Value unused_[K];
};

} // namespace cub
