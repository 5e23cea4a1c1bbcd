// Stands in for kernels/cuda/warp_group.h when kernel sources are compiled as C++ for tests: tiles
// of many rows are computed so, small ones by the instructions of a warp. Products are done at
// once.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Element `term` of row `row` of an operand.
template <typename T, Major kMajor>
T operand_element(const unsigned char* operand, std::size_t row, std::size_t term) {
  constexpr std::size_t kRow = 128, kPanel = kernels::cuda::kPanelTerms * kRow, kRowsOfPanel = 64;
  const std::size_t at = kMajor == Major::kRowsOfTerms ? row * kRow + term * sizeof(T)
                                                       : row / kRowsOfPanel * kPanel + term * kRow +
                                                             row % kRowsOfPanel * sizeof(T);
  T value;
  std::memcpy(&value, swizzled(operand, at), sizeof value);
  return value;
}

// What one instruction adds to the sums of a group's threads, [64, kColumns]. The first thread of a
// block that comes to it multiplies for all: until the last has come, none may write the operands.
template <typename Operand, Major kMajor, int kColumns>
class GroupProduct {
 public:
  static constexpr std::size_t kRows = 64, kTerms = 32 / sizeof(Operand);
  using Weight = typename kernels::cuda::TensorCore<Operand>::Weight;
  // Products of integers wrap around, those of bfloat16 are exact.
  using Exact = std::conditional_t<sizeof(Operand) == 1, std::int32_t, double>;

  static const GroupProduct& of_thread(const unsigned char* left, const unsigned char* right) {
    // Products of two stages: threads wait for each other between any two.
    static std::array<GroupProduct, 32> products;
    Calls& mine = calls()[threadIdx.x];
    if (mine.block != blocks_begun) mine = {blocks_begun, 0};
    ++mine.count;
    GroupProduct& product = products[mine.count % products.size()];
    if (product.call_.block != mine.block || product.call_.count != mine.count) {
      product.multiply(left, right);
      product.call_ = mine;
    }
    return product;
  }
  Exact at(std::size_t row, std::size_t column) const { return sums_[row * kColumns + column]; }

 private:
  struct Calls {
    std::uint64_t block = 0, count = 0;
  };
  static std::array<Calls, 1024>& calls() {
    static std::array<Calls, 1024> threads;
    return threads;
  }
  static Exact number(std::uint8_t value) { return value; }
  static Exact number(std::int8_t value) { return value; }
  static Exact number(kernels::BFloat16 value) { return Exact{kernels::widen(value)}; }

  void multiply(const unsigned char* left, const unsigned char* right) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      for (std::size_t k = 0; k < kTerms; ++k) {
        right_[k * kColumns + column] = number(operand_element<Weight, kMajor>(right, column, k));
      }
    }
    sums_.fill(0);
    for (std::size_t row = 0; row < kRows; ++row) {
      Exact* const sums = &sums_[row * kColumns];
      for (std::size_t k = 0; k < kTerms; ++k) {
        const Exact factor = number(operand_element<Operand, kMajor>(left, row, k));
        const Exact* const terms = &right_[k * kColumns];
        for (std::size_t column = 0; column < kColumns; ++column) {
          sums[column] += factor * terms[column];
        }
      }
    }
  }

  Calls call_;
  std::array<Exact, kTerms * kColumns> right_;
  std::array<Exact, kRows * kColumns> sums_;
};

}  // namespace steelyard::emulation

namespace steelyard::kernels::cuda {

template <typename Operand, Major kMajor, int kColumns, typename Sum>
void multiply_by_group(Sum (&sums)[kColumns / 2], const unsigned char* left,
                       const unsigned char* right) {
  const auto& product = emulation::GroupProduct<Operand, kMajor, kColumns>::of_thread(left, right);
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const unsigned row = 16 * (thread / 32) + lane / 4;
  for (unsigned i = 0; i < kColumns / 2; ++i) {
    const unsigned column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    const auto term = product.at(row + i / 2 % 2 * 8, column);
    if constexpr (sizeof(Operand) == 1) {
      sums[i] =
          static_cast<Sum>(static_cast<std::uint32_t>(sums[i]) + static_cast<std::uint32_t>(term));
    } else {
      sums[i] = static_cast<Sum>(double{sums[i]} + term);
    }
  }
}

inline void begin_group_products() {}
inline void end_group_products() {}
inline void wait_for_group_products() {}
inline void show_to_group_products() {}

}  // namespace steelyard::kernels::cuda
