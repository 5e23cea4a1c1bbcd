// Stands in for kernels/cuda/warp_group.h when kernel sources are compiled as C++ for tests: tiles
// of many rows are computed so, small ones by the instructions of a warp. Products are done at
// once.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "steelyard/kernels/cuda/tensor_core.h"

namespace steelyard::kernels::cuda {

template <int kRows>
inline constexpr bool kByWarpGroups = kRows > 64;

enum class Major { kRowsOfTerms, kTermsOfRows };
inline constexpr int kPanelTerms = 64;

}  // namespace steelyard::kernels::cuda

namespace steelyard::emulation {

using kernels::cuda::Major;

// Byte `at` of an operand in shared memory, whose pieces of 16 bytes are permuted by their address.
inline const std::byte* swizzled(const unsigned char* operand, std::size_t at) {
  const std::byte* base = shared_memory();
  const auto place =
      static_cast<std::size_t>(reinterpret_cast<const std::byte*>(operand) - base) + at;
  return base + (place ^ (place >> 7 & 7) << 4);
}

// The terms of row `row` of an operand.
template <typename T, Major kMajor>
std::array<T, 32 / sizeof(T)> terms_of_row(const unsigned char* operand, std::size_t row) {
  constexpr std::size_t kRow = 128, kPanel = kernels::cuda::kPanelTerms * kRow, kRowsOfPanel = 64;
  std::array<T, 32 / sizeof(T)> terms;
  for (std::size_t term = 0; term < terms.size(); ++term) {
    const std::size_t at =
        kMajor == Major::kRowsOfTerms
            ? row * kRow + term * sizeof(T)
            : row / kRowsOfPanel * kPanel + term * kRow + row % kRowsOfPanel * sizeof(T);
    std::memcpy(&terms[term], swizzled(operand, at), sizeof(T));
  }
  return terms;
}

}  // namespace steelyard::emulation

namespace steelyard::kernels::cuda {

template <typename Operand, Major kMajor, int kColumns, typename Sum>
void multiply_by_group(Sum (&sums)[kColumns / 2], const unsigned char* left,
                       const unsigned char* right) {
  using Weight = typename TensorCore<Operand>::Weight;
  using emulation::terms_of_row;
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const unsigned row = 16 * (thread / 32) + lane / 4;
  const std::array rows{terms_of_row<Operand, kMajor>(left, row),
                        terms_of_row<Operand, kMajor>(left, row + 8)};
  for (unsigned i = 0; i < kColumns / 4; ++i) {
    const unsigned column = i / 2 * 8 + 2 * (lane % 4) + i % 2;
    const auto terms = terms_of_row<Weight, kMajor>(right, column);
    for (unsigned half = 0; half < 2; ++half) {
      Sum& sum = sums[i / 2 * 4 + 2 * half + i % 2];
      if constexpr (sizeof(Operand) == 1) {
        auto wrapped = static_cast<std::uint32_t>(sum);
        for (std::size_t k = 0; k < terms.size(); ++k) {
          wrapped += static_cast<std::uint32_t>(std::int32_t{rows[half][k]} * terms[k]);
        }
        sum = static_cast<Sum>(wrapped);
      } else {
        double exact = sum;
        for (std::size_t k = 0; k < terms.size(); ++k) {
          exact += double{widen(rows[half][k])} * double{widen(terms[k])};
        }
        sum = static_cast<Sum>(exact);
      }
    }
  }
}

inline void begin_group_products() {}
inline void end_group_products() {}
inline void wait_for_group_products() {}
inline void show_to_group_products() {}

}  // namespace steelyard::kernels::cuda
