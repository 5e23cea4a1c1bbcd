#include "kernels/layer_norm.h"

#include "kernels/cpu/row_sums.h"
#include "kernels/norm_formulas.h"

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
void layer_norm_forward(std::int64_t rows, std::int64_t columns, const T* x, const T* gamma,
                        const T* beta, double eps, T* y, T* mean, T* inv_std) {
  for_each_row(rows, columns, [&](std::int64_t r) {
    const T* row = x + r * columns;
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += double(row[c]);
    const double m = sum / double(columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      squares += (double(row[c]) - m) * (double(row[c]) - m);
    }
    mean[r] = T(m);
    inv_std[r] = T(inverse_std_of(squares / double(columns), eps));
    for (std::int64_t c = 0; c < columns; ++c) {
      y[r * columns + c] = (row[c] - mean[r]) * inv_std[r] * gamma[c] + beta[c];
    }
  });
}

template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t columns, const T* x, const T* grad_y,
                         const T* mean, const T* inv_std, const T* gamma, T* grad_x, T* grad_gamma,
                         T* grad_beta) {
  if (columns == 0) return;
  const auto normalised = [=](std::int64_t i) {
    return (x[i] - mean[i / columns]) * inv_std[i / columns];
  };
  if (grad_gamma != nullptr || grad_beta != nullptr) {
    const std::vector<double> sums = row_sums(
        RowChunks(rows, columns),
        [=](std::int64_t i, std::int64_t) { return grad_y[i] * normalised(i); },
        [=](std::int64_t i, std::int64_t) { return grad_y[i]; });
    for (std::int64_t c = 0; c < columns; ++c) {
      if (grad_gamma != nullptr) grad_gamma[c] = T(sums[c]);
      if (grad_beta != nullptr) grad_beta[c] = T(sums[columns + c]);
    }
  }
  if (grad_x == nullptr) return;
  for_each_row(rows, columns, [=](std::int64_t r) {
    double sum = 0, projected = 0;  // of the gradient of the normalised row, and along that row
    for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) {
      const double g = double(grad_y[i]) * double(gamma[i - r * columns]);
      sum += g;
      projected += g * double(normalised(i));
    }
    for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) {
      const double g = double(grad_y[i]) * double(gamma[i - r * columns]);
      const double centred = g - (sum + double(normalised(i)) * projected) / double(columns);
      grad_x[i] = T(centred * double(inv_std[r]));
    }
  });
}

template void layer_norm_forward(std::int64_t, std::int64_t, const float*, const float*,
                                 const float*, double, float*, float*, float*);
template void layer_norm_forward(std::int64_t, std::int64_t, const double*, const double*,
                                 const double*, double, double*, double*, double*);
template void layer_norm_backward(std::int64_t, std::int64_t, const float*, const float*,
                                  const float*, const float*, const float*, float*, float*, float*);
template void layer_norm_backward(std::int64_t, std::int64_t, const double*, const double*,
                                  const double*, const double*, const double*, double*, double*,
                                  double*);

}  // namespace steelyard::kernels
