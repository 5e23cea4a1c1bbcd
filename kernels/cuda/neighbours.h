// Neighbouring values that a thread reads, writes and computes together.
#pragma once

#include "steelyard/kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {

template <typename T, int n>
struct alignas(sizeof(T) * n) Neighbours {
  T of[n];

  __device__ Neighbours& operator+=(const Neighbours& other) {
#pragma unroll
    for (int i = 0; i < n; ++i) of[i] += other.of[i];
    return *this;
  }
};

// At an address that is a multiple of their size: see begin_with_neighbours().
template <int n, typename T>
__device__ Neighbours<T, n> load(const T* values) {
  return *reinterpret_cast<const Neighbours<T, n>*>(values);
}
template <typename T, int n>
__device__ void store(const Neighbours<T, n>& from, T* to) {
  *reinterpret_cast<Neighbours<T, n>*>(to) = from;
}

// Whether arrays, which may be null, begin where n neighbours may lie.
template <int n, typename... T>
bool begin_with_neighbours(const T*... arrays) {
  return (is_aligned(arrays, sizeof(T) * n) && ...);
}

}  // namespace steelyard::kernels::cuda
