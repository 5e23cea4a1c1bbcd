// Each lane of a vector has an output of its own, so that its sum keeps its order. Columns of w are
// stored as doubles, those of a vector side by side, and so are four rows of x.
#include "steelyard/kernels/ordered_product/ordered_product.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t kLanes = 8;
#elif defined(__FMA__)
constexpr std::int64_t kLanes = 4;
#else
constexpr std::int64_t kLanes = 2;
#endif
using Doubles [[gnu::vector_size(kLanes * sizeof(double))]] = double;

// sum + x * w. The product is exact, so fused or not it is the same.
inline Doubles add_product(Doubles sum, double x, Doubles w) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(_mm512_set1_pd(x), w, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(_mm256_set1_pd(x), w, sum);
#else
  return sum + x * w;
#endif
}

constexpr std::int64_t kRows = 4, kVectors = 2;  // whose sums are in registers
constexpr std::int64_t kColumns = kVectors * kLanes;
constexpr std::int64_t kBand = 64;  // rows that share the columns that a thread has stored

// Columns [column, column + count) of a matrix as [terms, kColumns], zeros behind the last one.
void load_columns(const OrderedProduct& k, const float* w, std::int64_t column, std::int64_t count,
                  double* to) {
  if (count < kColumns) std::fill_n(to, k.terms * kColumns, 0.0);
  for (std::int64_t c = 0; c < count; ++c) {
    const float* const from = w + (column + c) * k.to_column;
    for (std::int64_t t = 0; t < k.terms; ++t) to[t * kColumns + c] = double{from[t * k.to_term]};
  }
}

// Rows as [terms, kRows], zeros behind the last one.
void load_rows(const OrderedProduct& k, const float* x, std::int64_t count, double* to) {
  if (count < kRows) std::fill_n(to, k.terms * kRows, 0.0);
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t t = 0; t < k.terms; ++t) to[t * kRows + r] = double{x[r * k.terms + t]};
  }
}

void multiply(std::int64_t terms, const double* x, const double* w, double* sums) {
  static_assert(kRows == 4 && kVectors == 2);
  Doubles s[kRows][kVectors] = {};
  for (std::int64_t t = 0; t < terms; ++t, x += kRows, w += kColumns) {
    Doubles of_w[kVectors];
    std::memcpy(of_w, w, sizeof of_w);
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < kRows; ++r) {
      s[r][0] = add_product(s[r][0], x[r], of_w[0]);
      s[r][1] = add_product(s[r][1], x[r], of_w[1]);
    }
  }
  std::memcpy(sums, s, sizeof s);
}

// Rows [row, row + rows) of the columns that are stored in `w`.
void compute_band(const OrderedProduct& k, std::int64_t row, std::int64_t rows, const double* w,
                  std::int64_t column, std::int64_t columns) {
  auto* const x = line_buffer<double, 1>(k.terms * kRows);
  for (std::int64_t first = row; first < row + rows; first += kRows) {
    const std::int64_t count = std::min(kRows, row + rows - first);
    load_rows(k, k.x + first * k.terms, count, x);
    double sums[kRows * kColumns];
    multiply(k.terms, x, w, sums);
    for (std::int64_t r = 0; r < count; ++r) {
      float* const y = k.y + (first + r) * k.columns + column;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double sum = sums[r * kColumns + c];
        y[c] = static_cast<float>(k.bias == nullptr ? sum : sum + k.bias[column + c]);
      }
    }
  }
}

}  // namespace

static void compute(const OrderedProduct& k) {
  const std::int64_t bands = (k.rows + kBand - 1) / kBand;
  const std::int64_t panels = (k.columns + kColumns - 1) / kColumns;
  constexpr std::int64_t kWork = 1 << 18;  // multiply-adds that pay for waking a thread
  const std::int64_t of_part = std::min(k.rows, kBand) * kColumns * k.terms;
  parallel_for(k.batch * panels * bands, kWork / std::max<std::int64_t>(1, of_part) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 auto* const w = line_buffer<double, 0>(k.terms * kColumns);
                 std::int64_t stored = -1;  // number of the columns in w
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t panel = i / bands, image = panel / panels;
                   const std::int64_t column = panel % panels * kColumns;
                   const std::int64_t columns = std::min(kColumns, k.columns - column);
                   if (panel != stored) {
                     load_columns(k, k.w + image * k.terms * k.columns, column, columns, w);
                   }
                   stored = panel;
                   const std::int64_t row = i % bands * kBand;
                   compute_band(k, image * k.rows + row, std::min(kBand, k.rows - row), w, column,
                                columns);
                 }
               });
}

template struct CpuKernels<OrderedProductKernels>;

}  // namespace steelyard::kernels
