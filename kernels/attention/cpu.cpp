#include "steelyard/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {
namespace {

// Keys that are visited together: their products with a query are one row of a small matrix.
constexpr std::int64_t kKeysAtOnce = 64;

template <typename T>
T scale_of(const AttentionShape& shape) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(shape.width)));
}

// Keys, or values, of some positions of a head: [width, kKeysAtOnce].
template <typename T>
class TransposedRows {
 public:
  explicit TransposedRows(std::int64_t width)
      : width_(width), rows_(static_cast<std::size_t>(width * kKeysAtOnce)) {}

  void read(const T* from, std::int64_t stride, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
      for (std::int64_t d = 0; d < width_; ++d) rows_[d * kKeysAtOnce + j] = from[j * stride + d];
    }
  }
  // products[j] = factor * (x . row j) for every j.
  void multiply(const T* x, T factor, T* products) const {
    std::fill_n(products, kKeysAtOnce, T(0));
    const T* row = rows_.data();
    for (std::int64_t d = 0; d < width_; ++d, row += kKeysAtOnce) {
      const T scaled = factor * x[d];
#pragma omp simd
      for (std::int64_t j = 0; j < kKeysAtOnce; ++j) products[j] += scaled * row[j];
    }
  }

 private:
  std::int64_t width_;
  std::vector<T> rows_;
};

template <typename T>
void add_scaled(std::int64_t n, T factor, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Which keys of a block a query sees: from `begin` to before `end`, counted from the block's first.
struct Visible {
  std::int64_t begin, end;
};
template <class Attention>
Visible visible_keys(const Attention& a, std::int64_t sample, std::int64_t query,
                     std::int64_t first, std::int64_t count) {
  const std::int64_t position = a.shape.earlier() + query;
  const std::int64_t start = a.shape.start_of(a.starts, sample, position);
  return {std::max<std::int64_t>(0, start - first), std::min(count, position - first + 1)};
}

// The rows of one head of keys in a sample, for all heads of queries that read it.
template <typename T>
void attend(const CausalAttention<T>& a, std::int64_t sample, std::int64_t key_head) {
  const AttentionShape& s = a.shape;
  const std::int64_t stride = s.key_heads * s.width;
  const std::int64_t first_head = key_head * s.group();
  TransposedRows<T> keys(s.width);
  std::vector<T> largest(s.group() * s.queries, -static_cast<T>(INFINITY));
  std::vector<double> sums(s.group() * s.queries, 0.0);
  T products[kKeysAtOnce];
  for (std::int64_t first = 0; first < s.keys; first += kKeysAtOnce) {
    const std::int64_t count = std::min(kKeysAtOnce, s.keys - first);
    keys.read(a.k + s.key_at(sample, key_head, first), stride, count);
    for (std::int64_t h = 0; h < s.group(); ++h) {
      for (std::int64_t i = std::max<std::int64_t>(0, first - s.earlier()); i < s.queries; ++i) {
        T* const y = a.y + s.query_at(sample, first_head + h, i);
        if (first == 0) std::fill_n(y, s.width, T(0));
        const auto [begin, end] = visible_keys(a, sample, i, first, count);
        if (begin >= end) continue;
        keys.multiply(a.q + s.query_at(sample, first_head + h, i), scale_of<T>(s), products);
        T& most = largest[h * s.queries + i];
        double& sum = sums[h * s.queries + i];
        const T now = std::max(most, *std::max_element(products + begin, products + end));
        const T shrink = std::exp(most - now);  // 0 of the first keys
        if (shrink != T(1)) {
          for (std::int64_t d = 0; d < s.width; ++d) y[d] *= shrink;
        }
        sum *= static_cast<double>(shrink);
        most = now;
        const T* value = a.v + s.key_at(sample, key_head, first + begin);
        for (std::int64_t j = begin; j < end; ++j, value += stride) {
          const T share = std::exp(products[j] - now);
          sum += static_cast<double>(share);
          add_scaled(s.width, share, value, y);
        }
      }
    }
  }
  for (std::int64_t h = 0; h < s.group(); ++h) {
    for (std::int64_t i = 0; i < s.queries; ++i) {
      const double sum = sums[h * s.queries + i];
      T* const y = a.y + s.query_at(sample, first_head + h, i);
      for (std::int64_t d = 0; d < s.width; ++d) y[d] *= static_cast<T>(1 / sum);
      a.log_sums[s.row_of(sample, first_head + h, i)] =
          static_cast<T>(static_cast<double>(largest[h * s.queries + i]) + std::log(sum));
    }
  }
}

template <typename T>
void project(const CausalAttentionBackward<T>& a, std::int64_t sample, std::int64_t head) {
  const AttentionShape& s = a.shape;
  for (std::int64_t i = 0; i < s.queries; ++i) {
    const std::int64_t at = s.query_at(sample, head, i);
    double sum = 0;
    for (std::int64_t d = 0; d < s.width; ++d) {
      sum += static_cast<double>(a.y[at + d]) * static_cast<double>(a.grad_y[at + d]);
    }
    a.projections[s.row_of(sample, head, i)] = static_cast<T>(sum);
    std::fill_n(a.grad_q + at, s.width, T(0));
  }
}

template <typename T>
void attend_backward(const CausalAttentionBackward<T>& a, std::int64_t sample,
                     std::int64_t key_head) {
  const AttentionShape& s = a.shape;
  const std::int64_t stride = s.key_heads * s.width;
  const std::int64_t first_head = key_head * s.group();
  const T scale = scale_of<T>(s);
  TransposedRows<T> keys(s.width), values(s.width);
  T products[kKeysAtOnce], slopes[kKeysAtOnce];
  for (std::int64_t h = 0; h < s.group(); ++h) project(a, sample, first_head + h);
  for (std::int64_t first = 0; first < s.keys; first += kKeysAtOnce) {
    const std::int64_t count = std::min(kKeysAtOnce, s.keys - first);
    const std::int64_t first_at = s.key_at(sample, key_head, first);
    keys.read(a.k + first_at, stride, count);
    values.read(a.v + first_at, stride, count);
    for (std::int64_t j = 0; j < count; ++j) {
      std::fill_n(a.grad_k + first_at + j * stride, s.width, T(0));
      std::fill_n(a.grad_v + first_at + j * stride, s.width, T(0));
    }
    for (std::int64_t h = 0; h < s.group(); ++h) {
      for (std::int64_t i = std::max<std::int64_t>(0, first - s.earlier()); i < s.queries; ++i) {
        const auto [begin, end] = visible_keys(a, sample, i, first, count);
        if (begin >= end) continue;
        const std::int64_t at = s.query_at(sample, first_head + h, i);
        const std::int64_t row = s.row_of(sample, first_head + h, i);
        keys.multiply(a.q + at, scale, products);
        values.multiply(a.grad_y + at, T(1), slopes);
        for (std::int64_t j = begin; j < end; ++j) {
          const std::int64_t key = first_at + j * stride;
          const T share = std::exp(products[j] - a.log_sums[row]);
          const T slope = share * (slopes[j] - a.projections[row]) * scale;
          add_scaled(s.width, share, a.grad_y + at, a.grad_v + key);
          add_scaled(s.width, slope, a.q + at, a.grad_k + key);
          add_scaled(s.width, slope, a.k + key, a.grad_q + at);
        }
      }
    }
  }
}

template <class F>
void for_each_key_head(const AttentionShape& shape, const F& f) {
  parallel_for(shape.samples * shape.key_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i / shape.key_heads, i % shape.key_heads);
  });
}

}  // namespace

template <typename T>
void compute(const CausalAttention<T>& a) {
  for_each_key_head(a.shape,
                    [&](std::int64_t sample, std::int64_t head) { attend(a, sample, head); });
}

template <typename T>
void compute(const CausalAttentionBackward<T>& a) {
  for_each_key_head(
      a.shape, [&](std::int64_t sample, std::int64_t head) { attend_backward(a, sample, head); });
}

template struct CpuKernels<AttentionKernels>;

}  // namespace steelyard::kernels
