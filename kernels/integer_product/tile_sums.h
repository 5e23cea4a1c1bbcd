// A tile of exact integer sums in registers: rows of operands by packed weights. An instruction
// multiplies some neighbouring operands of a row by as many weights of each column and adds the
// products to the column's int32 sum. PairSums and QuadSums say which.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "steelyard/kernels/cpu/each_index.h"

namespace steelyard::kernels {

// The sums fill the registers: Sums::kRows rows of two vectors, or twice as many of one.
template <class Sums, std::int64_t kVectors>
inline constexpr std::int64_t kTileRows = Sums::kRows * 2 / kVectors;

// A tile of fewer rows has a multiple of so many.
template <class Sums, std::int64_t kVectors>
inline constexpr std::int64_t kRowStep = 4 / kVectors;

// sums[r * stride + c] = first[c] plus the sum over runs b and operands i of rows[r][begins[b] + i]
// times the weight of column c; with `add`, what is there takes the place of first[c]. Runs have
// the same length, a multiple of kTogether; weights are
// [runs, length / kTogether, columns, kTogether], and there are kVectors * kLanes columns.
template <class Sums, std::int64_t kVectors, std::int64_t kTile = kTileRows<Sums, kVectors>>
void sum_tile(const typename Sums::Operand* const* rows, std::span<const std::int64_t> begins,
              std::int64_t length, const typename Sums::Weight* weights, const std::int32_t* first,
              bool add, std::int32_t* sums, std::int64_t stride) {
  constexpr std::int64_t kStep = kVectors * Sums::kLanes * Sums::kTogether;
  constexpr std::int64_t kAhead = 2048 / sizeof(typename Sums::Weight);
  constexpr std::int64_t kSums = kTile * kVectors;
  typename Sums::Lanes of[kSums];
  for_each_index<kSums>([&](auto i) {
    constexpr std::int64_t kRow = i / kVectors, kColumn = i % kVectors * Sums::kLanes;
    of[i] = Sums::load_sums(add ? sums + kRow * stride + kColumn : first + kColumn);
  });
  for (const std::int64_t begin : begins) {
    for (std::int64_t i = 0; i < length; i += Sums::kTogether, weights += kStep) {
      typename Sums::Weights columns[kVectors];
      for_each_index<kVectors>([&](auto v) {
        columns[v] = Sums::load_weights(weights + v * Sums::kLanes * Sums::kTogether);
        __builtin_prefetch(weights + v * Sums::kLanes * Sums::kTogether + kAhead);
      });
      for_each_index<kTile>([&](auto r) {
        const auto operands = Sums::repeat(rows[r] + begin + i);
        for_each_index<kVectors>([&](auto v) {
          constexpr std::int64_t kSum = r * kVectors + v;
          of[kSum] = Sums::add_products(of[kSum], operands, columns[v]);
        });
      });
    }
  }
  for_each_index<kSums>([&](auto i) {
    Sums::store(sums + i / kVectors * stride + i % kVectors * Sums::kLanes, of[i]);
  });
}

// sum_tile() of so many rows: a multiple of kRowStep, at most kTileRows.
template <class Sums, std::int64_t kVectors>
auto sum_tile_of(std::int64_t rows) {
  constexpr std::int64_t kStep = kRowStep<Sums, kVectors>;
  constexpr auto by_rows = []<std::int64_t... i>(std::integer_sequence<std::int64_t, i...>) {
    return std::array{&sum_tile<Sums, kVectors, kStep*(i + 1)>...};
  };
  constexpr auto kBy =
      by_rows(std::make_integer_sequence<std::int64_t, kTileRows<Sums, kVectors> / kStep>());
  return kBy[static_cast<std::size_t>(rows / kStep - 1)];
}

}  // namespace steelyard::kernels
