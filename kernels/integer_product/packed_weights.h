// Weights in the order of tiles. Private to this family's CPU products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "steelyard/kernels/cpu/each_index.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/integer_product/packed_memory.h"
#include "steelyard/kernels/integer_product/tile_windows.h"

namespace steelyard::kernels::tiled_products {

// Whether some weights are left to a second product.
template <class Sums>
inline constexpr bool kLeavesRest = requires(const std::int8_t* weights) {
  Sums::fits(weights);
};

// Weights as [groups, tiles of columns, operands / kTogether, columns, kTogether], where the last
// tile of a group has one vector of columns if that is enough, and what the sums of each column
// begin with. With kLeavesRest they are kept.
template <class Sums>
class PackedWeights {
 public:
  using Memory = PackedMemory<typename Sums::Weight>;

  // `zero` is the operand of the value 0.
  PackedWeights(const Windows<Sums>& windows, const std::int8_t* w, std::int32_t zero,
                KeptWeights* kept)
      : outputs_(windows.shape().out_channels_per_group()),
        tiles_((outputs_ + kColumns<Sums> - 1) / kColumns<Sums>),
        size_(windows.operands() * kColumns<Sums>),
        all_tiles_(windows.shape().groups * tiles_),
        kept_(kept) {
    memory_ = packed_memory<typename Sums::Weight>(
        kept, all_tiles_ * kColumns<Sums>, all_tiles_ * size_,
        [&](const Memory& memory) { fill(windows, w, zero, memory); });
  }

  std::int64_t outputs() const { return outputs_; }  // of a group
  std::int64_t tiles() const { return tiles_; }
  std::int64_t columns(std::int64_t tile) const {
    return std::min(kColumns<Sums>, outputs_ - tile * kColumns<Sums>);
  }
  std::int64_t vectors(std::int64_t tile) const { return columns(tile) <= Sums::kLanes ? 1 : 2; }
  const typename Sums::Weight* weights(std::int64_t group, std::int64_t tile) const {
    return memory_.weights + (group * tiles_ + tile) * size_;
  }
  const std::int32_t* first(std::int64_t group, std::int64_t tile) const {
    return memory_.first + (group * tiles_ + tile) * kColumns<Sums>;
  }
  // The operands of which a vector of a tile has not all, from the begin of a window; kTogether lie
  // at each place, and the weights are [places, kLanes, kTogether].
  std::span<const std::int64_t> rest_begins(std::int64_t group, std::int64_t tile,
                                            std::int64_t vector) const {
    const std::int64_t* const ends = kept_->ends.data() + (group * tiles_ + tile) * 2 + vector;
    return std::span(kept_->begins).subspan(ends[0], ends[1] - ends[0]);
  }
  const std::int8_t* rest_weights(std::int64_t group, std::int64_t tile,
                                  std::int64_t vector) const {
    return kept_->weights.data() + kept_->ends[(group * tiles_ + tile) * 2 + vector] * kVector;
  }

  // Which part of the vectors has weights that its sums cannot take.
  double part_of_rest() const {
    std::int64_t all = 0, parts = 0;
    for (std::int64_t i = 0; i < 2 * all_tiles_; ++i) {
      for_each_vector(i / 2, i % 2, [&](std::int64_t, const std::int8_t* weights) {
        ++all;
        parts += Sums::fits(weights) ? 0 : 1;
      });
    }
    return static_cast<double>(parts) / static_cast<double>(all);
  }
  // Moves those weights to a second product.
  void leave_rest(const Windows<Sums>& windows) {
    KeptWeights& kept = *kept_;
    kept.ends.push_back(0);
    for (std::int64_t i = 0; i < 2 * all_tiles_; ++i) {
      for_each_vector(i / 2, i % 2, [&](std::int64_t operand, std::int8_t* weights) {
        if (Sums::fits(weights)) return;
        kept.begins.push_back(windows.begins()[operand / windows.length()] +
                              operand % windows.length());
        for (std::int64_t j = 0; j < kVector; j += 2) {
          const std::int8_t more = Sums::too_much(weights[j], weights[j + 1]);
          weights[j] = static_cast<std::int8_t>(weights[j] - more);
          kept.weights.insert(kept.weights.end(), {more, 0});
        }
      });
      kept.ends.push_back(std::ssize(kept.begins));
    }
  }

 private:
  static constexpr std::int64_t kVector = Sums::kLanes * Sums::kTogether;  // weights

  // Calls use(first operand, weights) for every kTogether operands of a vector of a tile.
  template <typename Use>
  void for_each_vector(std::int64_t tile_of_all, std::int64_t vector, const Use& use) const {
    const std::int64_t of_tile = vectors(tile_of_all % tiles_);
    if (vector >= of_tile) return;
    auto* at = memory_.weights + tile_of_all * size_ + vector * kVector;
    for (std::int64_t i = 0; i < size_ / kColumns<Sums>; i += Sums::kTogether) {
      use(i, at);
      at += of_tile * kVector;
    }
  }

  void fill(const Windows<Sums>& windows, const std::int8_t* w, std::int32_t zero,
            const Memory& memory) {
    const std::vector<std::int64_t> places = windows.places_of_channels();
    parallel_for(all_tiles_, 16384 / size_ + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) fill_tile(windows, places, w, zero, memory, i);
    });
  }

  void fill_tile(const Windows<Sums>& windows, const std::vector<std::int64_t>& places,
                 const std::int8_t* w, std::int32_t zero, const Memory& memory,
                 std::int64_t tile_of_all) {
    const Conv2dShape& s = windows.shape();
    const std::int64_t group = tile_of_all / tiles_, tile = tile_of_all % tiles_;
    const std::int64_t terms = s.weight_size() / s.out_channels;
    const std::int8_t* const of_tile = w + (group * outputs_ + tile * kColumns<Sums>)*terms;
    std::int32_t* const first = memory.first + tile_of_all * kColumns<Sums>;
    for (std::int64_t column = 0; column < kColumns<Sums>; ++column) {
      const std::int64_t count = column < columns(tile) ? terms : 0;
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < count; ++k) sum += of_tile[column * terms + k];
      first[column] = static_cast<std::int32_t>(0U - static_cast<std::uint32_t>(sum) *
                                                         static_cast<std::uint32_t>(zero));
    }
    auto* const to = memory.weights + tile_of_all * size_;
    std::fill_n(to, size_, typename Sums::Weight{0});  // of operands and columns without weights
    const std::int64_t wide = vectors(tile) * Sums::kLanes;
    if (!places.empty()) {
      put(places, of_tile, terms, s.kernel_h * s.kernel_w, columns(tile), wide, to);
      return;
    }
    // In order of the operands first.
    const std::int64_t operands = windows.operands();
    std::vector<std::int8_t> lines(static_cast<std::size_t>(columns(tile) * operands));
    for (std::int64_t column = 0; column < columns(tile); ++column) {
      windows.put_in_order(of_tile + column * terms, lines.data() + column * operands);
    }
    std::vector<std::int64_t> in_order(static_cast<std::size_t>(operands / Sums::kTogether));
    for (std::size_t i = 0; i < in_order.size(); ++i) in_order[i] = i * Sums::kTogether;
    put(in_order, lines.data(), operands, 1, columns(tile), wide, to);
  }

  // The weights of `columns` columns, `length` of each, as [places, wide, kTogether]: of each place
  // some that lie `step` apart, from there on, and none where it is negative. Some places at a
  // time, so that what is written stays in the first-level cache.
  static void put(const std::vector<std::int64_t>& places, const std::int8_t* from,
                  std::int64_t length, std::int64_t step, std::int64_t columns, std::int64_t wide,
                  typename Sums::Weight* to) {
    constexpr std::int64_t kTogether = Sums::kTogether, kBlock = 16;
    const std::int64_t count = std::ssize(places);
    for (std::int64_t block = 0; block < count; block += kBlock) {
      const std::int64_t end = std::min(count, block + kBlock);
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int8_t* const of_column = from + column * length;
        for (std::int64_t i = block; i < end; ++i) {
          if (places[i] < 0) continue;
          const std::int8_t* const first = of_column + places[i];
          auto* const together = to + (i * wide + column) * kTogether;
          for_each_index<kTogether>([&](auto j) { together[j] = first[j * step]; });
        }
      }
    }
  }

  std::int64_t outputs_, tiles_, size_, all_tiles_;
  KeptWeights* kept_;
  Memory memory_;
};

}  // namespace steelyard::kernels::tiled_products
