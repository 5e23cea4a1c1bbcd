// A tile of exact integer sums in registers: rows of operands by packed weights. An instruction
// multiplies some neighbouring operands of a row by as many weights of each column and adds the
// products to the column's int32 sum. PairSums, ByteSums, QuadSums, LongSums, DotSums and
// MatrixSums say which.
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

// What the sums of columns of some rows are read from and written to. A vector has those of one
// row, or of kRowsTogether.
template <class Sums>
[[gnu::always_inline]] inline typename Sums::Lanes load_lanes(const std::int32_t* from,
                                                              std::int64_t stride) {
  if constexpr (Sums::kRowsTogether == 1) {
    return Sums::load_sums(from);
  } else {
    return Sums::load_sums(from, from + stride);
  }
}
template <class Sums>
[[gnu::always_inline]] inline void store_lanes(std::int32_t* to, std::int64_t stride,
                                               typename Sums::Lanes sums) {
  if constexpr (Sums::kRowsTogether == 1) {
    Sums::store(to, sums);
  } else {
    Sums::store(to, to + stride, sums);
  }
}

// The products of one operand of each row, or of kTogether of them, with those of each column:
// weights are [columns, kTogether].
template <class Sums, std::int64_t kVectors, std::int64_t kLoads>
[[gnu::always_inline]] inline void add_one_by_one(const typename Sums::Operand* const* rows,
                                                  std::int64_t at,
                                                  const typename Sums::Weight* weights,
                                                  typename Sums::Lanes (&of)[kLoads]) {
  typename Sums::Weights columns[kVectors];
  for_each_index<kVectors>([&](auto v) {
    columns[v] = Sums::load_weights(weights + v * Sums::kLanes * Sums::kTogether);
    if constexpr (Sums::kAhead > 0) {
      __builtin_prefetch(weights + v * Sums::kLanes * Sums::kTogether + Sums::kAhead);
    }
  });
  for_each_index<kLoads / kVectors>([&](auto r) {
    const auto operands = [&] {
      if constexpr (Sums::kRowsTogether == 1) {
        return Sums::repeat(rows[r] + at);
      } else {
        return Sums::join(rows[2 * r] + at, rows[2 * r + 1] + at);
      }
    }();
    for_each_index<kVectors>([&](auto v) {
      constexpr std::int64_t kSum = r * kVectors + v;
      of[kSum] = Sums::add_products(of[kSum], operands, columns[v]);
    });
  });
}

// The same for Sums::kAtOnce times as many operands, which one load of a row brings.
template <class Sums, std::int64_t kVectors, std::int64_t kLoads>
[[gnu::always_inline]] inline void add_at_once(const typename Sums::Operand* const* rows,
                                               std::int64_t at,
                                               const typename Sums::Weight* weights,
                                               typename Sums::Lanes (&of)[kLoads]) {
  constexpr std::int64_t kStep = kVectors * Sums::kLanes * Sums::kTogether;
  typename Sums::Operands operands[kLoads / kVectors];
  for_each_index<kLoads / kVectors>([&](auto r) {
    if constexpr (Sums::kRowsTogether == 1) {
      operands[r] = Sums::load(rows[r] + at);
    } else {
      operands[r] = Sums::load(rows[2 * r] + at, rows[2 * r + 1] + at);
    }
  });
  for_each_index<Sums::kAtOnce>([&](auto j) {
    for_each_index<kVectors>([&](auto v) {
      const auto column =
          Sums::load_weights(weights + j * kStep + v * Sums::kLanes * Sums::kTogether);
      for_each_index<kLoads / kVectors>([&](auto r) {
        constexpr std::int64_t kSum = r * kVectors + v;
        of[kSum] = Sums::template add_products_of<j>(of[kSum], operands[r], column);
      });
    });
  });
}

// sums[r * stride + c] = first[c] plus the sum over runs b and operands i of rows[r][begins[b] + i]
// times the weight of column c; with `add`, what is there takes the place of first[c]. Runs have
// the same length, a multiple of kTogether; weights are
// [runs, length / kTogether, columns, kTogether], and there are kVectors * kLanes columns.
template <class Sums, std::int64_t kVectors, std::int64_t kTile = kTileRows<Sums, kVectors>>
void sum_tile(const typename Sums::Operand* const* rows, std::span<const std::int64_t> begins,
              std::int64_t length, const typename Sums::Weight* weights, const std::int32_t* first,
              bool add, std::int32_t* sums, std::int64_t stride) {
  constexpr std::int64_t kStep = kVectors * Sums::kLanes * Sums::kTogether;
  constexpr std::int64_t kLoads = kTile / Sums::kRowsTogether * kVectors;
  typename Sums::Lanes of[kLoads];
  const auto at = [&](std::int64_t i) {
    return i / kVectors * Sums::kRowsTogether * stride + i % kVectors * Sums::kLanes;
  };
  for_each_index<kLoads>([&](auto i) {
    of[i] = add ? load_lanes<Sums>(sums + at(i), stride)
                : load_lanes<Sums>(first + i % kVectors * Sums::kLanes, 0);
  });
  for (const std::int64_t begin : begins) {
    std::int64_t i = 0;
    if constexpr (Sums::kAtOnce > 1) {
      constexpr std::int64_t kOperands = Sums::kAtOnce * Sums::kTogether;
      for (; i + kOperands <= length; i += kOperands, weights += Sums::kAtOnce * kStep) {
        add_at_once<Sums, kVectors>(rows, begin + i, weights, of);
      }
    }
    for (; i < length; i += Sums::kTogether, weights += kStep) {
      add_one_by_one<Sums, kVectors>(rows, begin + i, weights, of);
    }
  }
  for_each_index<kLoads>([&](auto i) { store_lanes<Sums>(sums + at(i), stride, of[i]); });
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
