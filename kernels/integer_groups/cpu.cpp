// A product of groups, tile by tile. Operands without their zero points are stored column by column
// in vectors, so that one multiplication computes as many outputs as a vector holds.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/terms.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kTile = 64;     // rows and columns of a tile
constexpr std::int64_t kLanes = 16;    // outputs of a vector
constexpr std::int64_t kTogether = 4;  // rows whose sums are in registers at once
constexpr std::int64_t kTerms = 256;   // products that are added before they become int32

// Sums of kTerms products of codes of 8 bits are integers that float holds: |x - z| and |w - z| are
// at most 255, and 255 * 255 * 256 < 2^24. Wide codes are multiplied in int32.
template <typename Code>
using Number = std::conditional_t<sizeof(Code) == 1, float, std::int32_t>;

template <typename T>
using Vector [[gnu::vector_size(kLanes * sizeof(T))]] = T;

// The part of a product that a thread computes: outputs [row, row + rows) x [column, column +
// columns), and the operands of the terms at hand.
template <typename Code>
class Tile {
 public:
  using T = Number<Code>;

  explicit Tile(const GroupedProduct<Code>& product)
      : k_(product), x_(kTile * kTerms), w_(kTile * kTerms) {}

  void compute(std::int64_t row, std::int64_t column) {
    row_ = row;
    column_ = column;
    rows_ = std::min(kTile, k_.rows - row);
    columns_ = std::min(kTile, k_.columns - column);
    std::fill_n(y_, kTile * kTile, 0.0F);
    if (rows_ < kTile) std::fill(x_.begin(), x_.end(), T(0));  // beyond the last row nothing loads
    if (columns_ < kTile) std::fill(w_.begin(), w_.end(), T(0));
    const std::int64_t groups = k_.group_size == 0 ? 0 : k_.groups();
    for (std::int64_t group = 0; group < groups; ++group) {
      std::fill_n(sums_, kTile * kTile, 0);
      const std::int64_t end = (group + 1) * k_.group_size;
      for (std::int64_t first = group * k_.group_size; first < end; first += kTerms) {
        const std::int64_t terms = std::min(kTerms, end - first);
        load(group, first, terms);
        multiply(terms);
      }
      scale(group);
    }
    store();
  }

 private:
  // x_[row, term] and w_[columns of a vector, term, lane].
  void load(std::int64_t group, std::int64_t first, std::int64_t terms) {
    for (std::int64_t r = 0; r < rows_; ++r) {
      const Code* codes = k_.x + (row_ + r) * k_.terms + first;
      const std::int32_t zero = k_.of_x.zero_point[k_.of_x.at(row_ + r, group)];
      T* to = x_.data() + r * kTerms;
      for (std::int64_t t = 0; t < terms; ++t) to[t] = static_cast<T>(codes[t] - zero);
    }
    for (std::int64_t c = 0; c < columns_; ++c) {
      const std::int8_t* codes = k_.w + (column_ + c) * k_.terms + first;
      const std::int32_t zero = k_.w_zero(k_.of_w.at(column_ + c, group));
      T* to = w_.data() + c / kLanes * kLanes * kTerms + c % kLanes;
      for (std::int64_t t = 0; t < terms; ++t) to[t * kLanes] = static_cast<T>(codes[t] - zero);
    }
  }

  void multiply(std::int64_t terms) {
    static_assert(kTogether == 4);
    for (std::int64_t c = 0; c < columns_; c += kLanes) {
      const T* w = w_.data() + c * kTerms;
      for (std::int64_t r = 0; r < rows_; r += kTogether) {
        const T* x = x_.data() + r * kTerms;
        Vector<T> s0{}, s1{}, s2{}, s3{};
        for (std::int64_t t = 0; t < terms; ++t) {
          Vector<T> weights;
          std::memcpy(&weights, w + t * kLanes, sizeof(weights));
          s0 += x[t] * weights;
          s1 += x[kTerms + t] * weights;
          s2 += x[2 * kTerms + t] * weights;
          s3 += x[3 * kTerms + t] * weights;
        }
        const Vector<T>* const sums[] = {&s0, &s1, &s2, &s3};
        for (std::int64_t i = 0; i < kTogether; ++i) add(*sums[i], sums_ + (r + i) * kTile + c);
      }
    }
  }
  static void add(const Vector<T>& sum, std::int32_t* to) {
    Vector<std::int32_t> total;
    std::memcpy(&total, to, sizeof(total));
    total += __builtin_convertvector(sum, Vector<std::int32_t>);
    std::memcpy(to, &total, sizeof(total));
  }

  void scale(std::int64_t group) {
    float of_columns[kTile];
    for (std::int64_t c = 0; c < columns_; ++c) {
      of_columns[c] = k_.of_w.scale[k_.of_w.at(column_ + c, group)];
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      const float of_row = k_.of_x.scale[k_.of_x.at(row_ + r, group)];
      for (std::int64_t c = 0; c < columns_; ++c) {
        y_[r * kTile + c] += dequantize_sum(sums_[r * kTile + c], of_row * of_columns[c]);
      }
    }
  }

  void store() {
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* to = k_.y + (row_ + r) * k_.stride + column_;
      for (std::int64_t c = 0; c < columns_; ++c) {
        to[c] = k_.bias == nullptr ? y_[r * kTile + c] : y_[r * kTile + c] + k_.bias[column_ + c];
      }
    }
  }

  const GroupedProduct<Code>& k_;
  std::int64_t row_ = 0, column_ = 0, rows_ = 0, columns_ = 0;
  std::vector<T> x_, w_;
  alignas(64) std::int32_t sums_[kTile * kTile];
  alignas(64) float y_[kTile * kTile];
};

}  // namespace

template <typename Code>
void compute(const GroupedProduct<Code>& k) {
  check_terms("grouped_product", k.group_size, k.largest);
  const std::int64_t bands = (k.rows + kTile - 1) / kTile;
  const std::int64_t stripes = (k.columns + kTile - 1) / kTile;
  parallel_for(bands * stripes, 1, [&](std::int64_t begin, std::int64_t end) {
    Tile<Code> tile(k);
    for (std::int64_t i = begin; i < end; ++i) {
      tile.compute(i % bands * kTile, i / bands * kTile);
    }
  });
}

template struct CpuKernels<IntegerGroupsKernels>;

}  // namespace steelyard::kernels
