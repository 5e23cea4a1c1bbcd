#include "kernels/norm.h"

#include "kernels/cpu/row_sums.h"
#include "kernels/norm_formulas.h"

namespace steelyard::kernels {
namespace {

// One chunk, twice through the cache: deviations from a rounded mean cannot cancel, and their own
// sum corrects the rounding.
template <typename T>
void chunk_moments(const RowChunks& layout, std::int64_t chunk, const T* x, double* mean,
                   double* squares, std::vector<double>& wide) {
  const std::int64_t begin = layout.begin(chunk), end = layout.end(chunk), width = layout.width();
  const double count = double(end - begin) / double(layout.channels);
  wide.assign(2 * width, 0.0);
  add_terms(begin, end, width, wide.data(), [x](std::int64_t i, std::int64_t) { return x[i]; });
  std::vector<double> folded(2 * layout.channels);
  fold_repeats(layout, 1, wide.data(), folded.data());
  for (std::int64_t c = 0; c < layout.channels; ++c) folded[c] /= count;
  const std::vector<T> shifts = widen<T>(layout, folded.data());
  const T* shift = shifts.data();

  wide.assign(2 * width, 0.0);
  const auto deviation = [x, shift](std::int64_t i, std::int64_t c) { return x[i] - shift[c]; };
  const auto square = [deviation](std::int64_t i, std::int64_t c) {
    return deviation(i, c) * deviation(i, c);
  };
  add_terms(begin, end, width, wide.data(), deviation, square);
  fold_repeats(layout, 2, wide.data(), folded.data());
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const Moments moments =
        moments_about(count, double(shift[c]), folded[c], folded[layout.channels + c]);
    mean[c] = moments.mean;
    squares[c] = moments.squares;
  }
}

// sums[c] = sum grad_y, sums[channels + c] = sum grad_y * (x - mean).
template <typename T>
std::vector<double> gradient_sums(const RowChunks& layout, const T* x, const T* grad_y,
                                  const T* mean) {
  const std::vector<T> wide_mean = widen<T>(layout, mean);
  const auto gradient = [grad_y](std::int64_t i, std::int64_t) { return grad_y[i]; };
  const auto projected = [x, grad_y, m = wide_mean.data()](std::int64_t i, std::int64_t c) {
    return grad_y[i] * (x[i] - m[c]);
  };
  return row_sums(layout, gradient, projected);
}

template <typename T>
void write_parameter_gradients(std::int64_t channels, const std::vector<double>& sums,
                               const T* inv_std, T* grad_gamma, T* grad_beta) {
  for (std::int64_t c = 0; c < channels; ++c) {
    grad_beta[c] = T(sums[c]);
    grad_gamma[c] = T(sums[channels + c] * double(inv_std[c]));
  }
}

template <typename T>
std::vector<T> wide_slopes(const RowChunks& layout, const T* inv_std, const T* gamma) {
  std::vector<T> slope(layout.channels);
  for (std::int64_t c = 0; c < layout.channels; ++c) slope[c] = inv_std[c] * gamma[c];
  return widen<T>(layout, slope.data());
}

}  // namespace

template <typename T>
void batch_moments(std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* variance) {
  if (channels == 0) return;
  const RowChunks layout(rows, channels);
  std::vector<double> means(layout.chunks() * channels), squares(means.size());
  parallel_for(layout.chunks(), 2, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> wide;
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      chunk_moments(layout, chunk, x, means.data() + chunk * channels,
                    squares.data() + chunk * channels, wide);
    }
  });
  std::vector<Moments> totals(channels);
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    const double count = double(layout.end(chunk) - layout.begin(chunk)) / double(layout.channels);
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t at = chunk * channels + c;
      totals[c] = merged(totals[c], {count, means[at], squares[at]});
    }
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    mean[c] = T(totals[c].mean);
    variance[c] = T(totals[c].squares / double(rows));
  }
}

template <typename T>
void inverse_std(std::int64_t channels, const T* variance, double eps, T* inv_std) {
  for (std::int64_t c = 0; c < channels; ++c) {
    inv_std[c] = T(inverse_std_of(double(variance[c]), eps));
  }
}

template <typename T, typename R>
void move_running_statistics(std::int64_t channels, double momentum, double factor, const T* mean,
                             const T* variance, R* running_mean, R* running_variance) {
  for (std::int64_t c = 0; c < channels; ++c) {
    running_mean[c] = R(moved_statistic(double(running_mean[c]), momentum, double(mean[c])));
    running_variance[c] =
        R(moved_statistic(double(running_variance[c]), momentum, double(variance[c]) * factor));
  }
}

template <typename T>
void batch_norm_forward(std::int64_t rows, std::int64_t channels, const T* x, const T* mean,
                        const T* inv_std, const T* gamma, const T* beta, T* y) {
  if (rows * channels == 0) return;
  const RowChunks layout(rows, channels);
  const std::vector<T> means = widen<T>(layout, mean), offsets = widen<T>(layout, beta);
  const std::vector<T> slopes = wide_slopes(layout, inv_std, gamma);
  map_rows(layout, [x, y, m = means.data(), s = slopes.data(), b = offsets.data()](
                       std::int64_t i, std::int64_t c) { y[i] = (x[i] - m[c]) * s[c] + b[c]; });
}

template <typename T>
void batch_norm_backward_training(std::int64_t rows, std::int64_t channels, const T* x,
                                  const T* grad_y, const T* mean, const T* inv_std, const T* gamma,
                                  T* grad_x, T* grad_gamma, T* grad_beta) {
  if (channels == 0) return;
  const RowChunks layout(rows, channels);
  const std::vector<double> sums = gradient_sums(layout, x, grad_y, mean);
  write_parameter_gradients(channels, sums, inv_std, grad_gamma, grad_beta);
  if (grad_x == nullptr || rows == 0) return;
  // grad_x = slope * (grad_y - mean(grad_y) - xhat * mean(grad_y * xhat))
  std::vector<double> mean_grad(channels), projection(channels);
  for (std::int64_t c = 0; c < channels; ++c) {
    mean_grad[c] = sums[c] / double(rows);
    projection[c] = sums[channels + c] / double(rows) * double(inv_std[c]) * double(inv_std[c]);
  }
  const std::vector<T> means = widen<T>(layout, mean), slopes = wide_slopes(layout, inv_std, gamma);
  const std::vector<T> shifts = widen<T>(layout, mean_grad.data());
  const std::vector<T> factors = widen<T>(layout, projection.data());
  map_rows(layout, [x, grad_y, grad_x, m = means.data(), s = slopes.data(), g = shifts.data(),
                    p = factors.data()](std::int64_t i, std::int64_t c) {
    grad_x[i] = s[c] * ((grad_y[i] - g[c]) - (x[i] - m[c]) * p[c]);
  });
}

template <typename T>
void batch_norm_backward_frozen(std::int64_t rows, std::int64_t channels, const T* x,
                                const T* grad_y, const T* mean, const T* inv_std, const T* gamma,
                                T* grad_x, T* grad_gamma, T* grad_beta) {
  if (channels == 0) return;
  const RowChunks layout(rows, channels);
  const std::vector<double> sums = gradient_sums(layout, x, grad_y, mean);
  write_parameter_gradients(channels, sums, inv_std, grad_gamma, grad_beta);
  if (grad_x == nullptr || rows == 0) return;
  const std::vector<T> slopes = wide_slopes(layout, inv_std, gamma);
  map_rows(layout, [grad_y, grad_x, s = slopes.data()](std::int64_t i, std::int64_t c) {
    grad_x[i] = grad_y[i] * s[c];
  });
}

template void batch_moments(std::int64_t, std::int64_t, const float*, float*, float*);
template void batch_moments(std::int64_t, std::int64_t, const double*, double*, double*);
template void inverse_std(std::int64_t, const float*, double, float*);
template void inverse_std(std::int64_t, const double*, double, double*);
template void move_running_statistics(std::int64_t, double, double, const float*, const float*,
                                      float*, float*);
template void move_running_statistics(std::int64_t, double, double, const float*, const float*,
                                      double*, double*);
template void move_running_statistics(std::int64_t, double, double, const double*, const double*,
                                      float*, float*);
template void move_running_statistics(std::int64_t, double, double, const double*, const double*,
                                      double*, double*);
template void batch_norm_forward(std::int64_t, std::int64_t, const float*, const float*,
                                 const float*, const float*, const float*, float*);
template void batch_norm_forward(std::int64_t, std::int64_t, const double*, const double*,
                                 const double*, const double*, const double*, double*);
template void batch_norm_backward_training(std::int64_t, std::int64_t, const float*, const float*,
                                           const float*, const float*, const float*, float*, float*,
                                           float*);
template void batch_norm_backward_training(std::int64_t, std::int64_t, const double*, const double*,
                                           const double*, const double*, const double*, double*,
                                           double*, double*);
template void batch_norm_backward_frozen(std::int64_t, std::int64_t, const float*, const float*,
                                         const float*, const float*, const float*, float*, float*,
                                         float*);
template void batch_norm_backward_frozen(std::int64_t, std::int64_t, const double*, const double*,
                                         const double*, const double*, const double*, double*,
                                         double*, double*);

}  // namespace steelyard::kernels
