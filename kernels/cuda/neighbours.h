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
  __device__ friend Neighbours operator*(const Neighbours& a, const Neighbours& b) {
    Neighbours product;
#pragma unroll
    for (int i = 0; i < n; ++i) product.of[i] = a.of[i] * b.of[i];
    return product;
  }
};

// The i-th of an element, which is a value alone or several neighbours.
template <typename T>
__device__ T neighbour(const T& value, int) {
  return value;
}
template <typename T, int n>
__device__ T neighbour(const Neighbours<T, n>& values, int i) {
  return values.of[i];
}

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
