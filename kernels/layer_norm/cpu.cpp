#include "steelyard/kernels/layer_norm/layer_norm.h"

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/norm/formulas.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 8192;  // elements per thread that pay for waking it

// Calls body(row) for every row.
template <class Body>
void for_each_row(std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / columns);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace

template <typename T>
void compute(const LayerNorm<T>& k) {
  const std::int64_t columns = k.columns;
  for_each_row(k.rows, columns, [&, k](std::int64_t r) {
    const T* row = k.x + r * columns;
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += double(row[c]);
    const double m = sum / double(columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      squares += (double(row[c]) - m) * (double(row[c]) - m);
    }
    const T mean = k.mean[r] = T(m);
    const T inv_std = k.inv_std[r] = T(inverse_std_of(squares / double(columns), k.eps));
    for (std::int64_t c = 0; c < columns; ++c) {
      k.y[r * columns + c] = (row[c] - mean) * inv_std * k.gamma[c] + k.beta[c];
    }
  });
}

template <typename T>
void compute(const LayerNormBackward<T>& k) {
  if (k.columns == 0) return;
  const auto normalized = [k](std::int64_t i) {
    return (k.x[i] - k.mean[i / k.columns]) * k.inv_std[i / k.columns];
  };
  if (k.grad_gamma != nullptr || k.grad_beta != nullptr) {
    const std::vector<double> sums = row_sums(
        RowChunks(k.rows, k.columns),
        [=](std::int64_t i, std::int64_t) { return k.grad_y[i] * normalized(i); },
        [=](std::int64_t i, std::int64_t) { return k.grad_y[i]; });
    for (std::int64_t c = 0; c < k.columns; ++c) {
      if (k.grad_gamma != nullptr) k.grad_gamma[c] = T(sums[c]);
      if (k.grad_beta != nullptr) k.grad_beta[c] = T(sums[k.columns + c]);
    }
  }
  if (k.grad_x == nullptr) return;
  for_each_row(k.rows, k.columns, [=](std::int64_t r) {
    const std::int64_t first = r * k.columns, last = first + k.columns;
    double sum = 0, projected = 0;  // of the gradient of the normalized row, and along that row
    for (std::int64_t i = first; i < last; ++i) {
      const double g = double(k.grad_y[i]) * double(k.gamma[i - first]);
      sum += g;
      projected += g * double(normalized(i));
    }
    for (std::int64_t i = first; i < last; ++i) {
      const double g = double(k.grad_y[i]) * double(k.gamma[i - first]);
      const double centred = g - (sum + double(normalized(i)) * projected) / double(k.columns);
      k.grad_x[i] = T(centred * double(k.inv_std[r]));
    }
  });
}

template struct CpuKernels<LayerNormKernels>;

}  // namespace steelyard::kernels
