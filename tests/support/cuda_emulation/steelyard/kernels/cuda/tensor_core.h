// Stands in for kernels/cuda/tensor_core.h when kernel sources are compiled as C++ for tests. Lanes
// show each other what they hold; copies are made as late as waiting for them allows.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <vector>

#include "steelyard/kernels/cuda/launch.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::emulation {

// What the lanes of a warp hold of a call.
template <typename T>
class Shown {
 public:
  explicit Shown(const T& mine) {
    all()[threadIdx.x] = mine;
    __syncwarp();
  }
  ~Shown() noexcept(false) { __syncwarp(); }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  const T& operator[](unsigned lane) const {
    return all()[threadIdx.x / kWarpSize * kWarpSize + lane];
  }

 private:
  static std::array<T, 1024>& all() {
    static std::array<T, 1024> threads;
    return threads;
  }
};

struct Fragments {
  std::array<std::uint32_t, 4> a;
  std::array<std::uint32_t, 2> b;
};

template <typename A, typename B, typename Sum>
Sum dot_of_words(std::uint32_t a, std::uint32_t b) {
  std::array<A, 4 / sizeof(A)> left;
  std::array<B, 4 / sizeof(B)> right;
  std::memcpy(left.data(), &a, 4);
  std::memcpy(right.data(), &b, 4);
  Sum sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if constexpr (sizeof(A) == 1) {
      sum += static_cast<Sum>(left[i]) * static_cast<Sum>(right[i]);
    } else {
      sum += Sum{kernels::widen(left[i])} * Sum{kernels::widen(right[i])};
    }
  }
  return sum;
}

template <typename A, typename B, typename Exact, typename Sum>
void multiply_fragments(Sum (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                        std::uint32_t b1) {
  const Shown<Fragments> shown({{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const unsigned lane = threadIdx.x % kWarpSize;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4, upper = i / 2, column = 2 * (lane % 4) + i % 2;
    Exact sum = static_cast<Exact>(sums[i]);
    for (unsigned t = 0; t < 4; ++t) {
      const Fragments& of_row = shown[4 * row + t];
      const Fragments& of_column = shown[4 * column + t];
      sum += dot_of_words<A, B, Exact>(of_row.a[upper], of_column.b[0]);
      sum += dot_of_words<A, B, Exact>(of_row.a[upper + 2], of_column.b[1]);
    }
    if constexpr (sizeof(A) == 1) {
      sums[i] = static_cast<Sum>(static_cast<std::uint32_t>(sum));  // wraps around
    } else {
      sums[i] = static_cast<Sum>(sum);
    }
  }
}

inline const void* require_row(const void* row) {
  require_aligned(reinterpret_cast<std::uintptr_t>(row), 16);
  return row;
}

struct LateCopy {
  void* to;
  const void* from;
  std::size_t bytes;
};
// A thread's groups of copies; the last one is not ended.
class LateCopies {
 public:
  void add(const LateCopy& copy) { open_.push_back(copy); }
  void end() {
    ended_.push_back(std::move(open_));
    open_.clear();
  }
  void wait(std::size_t left) {
    for (; ended_.size() > left; ended_.pop_front()) {
      for (const LateCopy& copy : ended_.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    }
  }
  static LateCopies& of_thread() {
    static std::array<LateCopies, 1024> threads;
    return threads[threadIdx.x];
  }

 private:
  std::vector<LateCopy> open_;
  std::deque<std::vector<LateCopy>> ended_;
};

}  // namespace steelyard::emulation

namespace steelyard::kernels::cuda {

inline bool has_tensor_cores() { return true; }

inline void load_matrices(const void* row, std::uint32_t (&words)[4]) {
  const emulation::Shown<const void*> rows(emulation::require_row(row));
  const unsigned lane = threadIdx.x % emulation::kWarpSize;
  for (unsigned i = 0; i < 4; ++i) {
    std::memcpy(&words[i], static_cast<const std::byte*>(rows[8 * i + lane / 4]) + 4 * (lane % 4),
                4);
  }
}
inline void load_transposed(const void* row, std::uint32_t (&words)[4]) {
  const emulation::Shown<const void*> rows(emulation::require_row(row));
  const unsigned lane = threadIdx.x % emulation::kWarpSize;
  for (unsigned i = 0; i < 4; ++i) {
    std::array<std::uint16_t, 2> pair;
    for (unsigned n = 0; n < 2; ++n) {
      const void* from = rows[8 * i + 2 * (lane % 4) + n];
      std::memcpy(&pair[n], static_cast<const std::byte*>(from) + 2 * (lane / 4), 2);
    }
    std::memcpy(&words[i], pair.data(), 4);
  }
}

template <typename A>
struct TensorCore {
  using Weight = std::int8_t;
  using Sum = std::int32_t;
  static void multiply_add(Sum (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
    emulation::multiply_fragments<A, Weight, std::int64_t>(sums, a, b0, b1);
  }
};
template <>
struct TensorCore<BFloat16> {
  using Weight = BFloat16;
  using Sum = float;
  static void multiply_add(Sum (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
    emulation::multiply_fragments<BFloat16, Weight, double>(sums, a, b0, b1);
  }
};

template <int kBytes>
void copy_later(void* shared, const void* global) {
  emulation::require_aligned(reinterpret_cast<std::uintptr_t>(shared), kBytes);
  emulation::require_aligned(reinterpret_cast<std::uintptr_t>(global), kBytes);
  emulation::LateCopies::of_thread().add({shared, global, kBytes});
}
inline void end_copies() { emulation::LateCopies::of_thread().end(); }
template <int kLeft>
void wait_for_copies() {
  emulation::LateCopies::of_thread().wait(kLeft);
}

}  // namespace steelyard::kernels::cuda
