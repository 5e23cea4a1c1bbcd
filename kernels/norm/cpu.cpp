#include "steelyard/kernels/norm/norm.h"

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {
namespace {

// One chunk, read twice while it is in the cache. Deviations from a rounded mean do not cancel, and
// their sum corrects the rounding.
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
std::vector<double> gradient_sums(const RowChunks& layout, const BatchNormBackward<T>& k) {
  const std::vector<T> wide_mean = widen<T>(layout, k.mean);
  const auto gradient = [grad_y = k.grad_y](std::int64_t i, std::int64_t) { return grad_y[i]; };
  const auto projected = [x = k.x, grad_y = k.grad_y, m = wide_mean.data()](
                             std::int64_t i, std::int64_t c) { return grad_y[i] * (x[i] - m[c]); };
  return row_sums(layout, gradient, projected);
}

template <typename T>
std::vector<T> wide_slopes(const RowChunks& layout, const T* inv_std, const T* gamma) {
  std::vector<T> slope(layout.channels);
  for (std::int64_t c = 0; c < layout.channels; ++c) slope[c] = inv_std[c] * gamma[c];
  return widen<T>(layout, slope.data());
}

}  // namespace

template <typename T>
void compute(const BatchMoments<T>& k) {
  const std::int64_t channels = k.channels;
  if (channels == 0) return;
  const RowChunks layout(k.rows, channels);
  std::vector<double> means(layout.chunks() * channels), squares(means.size());
  parallel_for(layout.chunks(), 2, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> wide;
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      chunk_moments(layout, chunk, k.x, means.data() + chunk * channels,
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
    k.mean[c] = T(totals[c].mean);
    k.variance[c] = T(totals[c].squares / double(k.rows));
  }
}

template <typename T>
void compute(const BatchNorm<T>& k) {
  if (k.rows * k.channels == 0) return;
  const RowChunks layout(k.rows, k.channels);
  const std::vector<T> means = widen<T>(layout, k.mean), offsets = widen<T>(layout, k.beta);
  const std::vector<T> slopes = wide_slopes(layout, k.inv_std, k.gamma);
  map_rows(layout, [x = k.x, y = k.y, m = means.data(), s = slopes.data(), b = offsets.data()](
                       std::int64_t i, std::int64_t c) { y[i] = (x[i] - m[c]) * s[c] + b[c]; });
}

template <typename T>
void compute(const BatchNormBackward<T>& k) {
  const std::int64_t channels = k.channels;
  if (channels == 0) return;
  const RowChunks layout(k.rows, channels);
  const std::vector<double> sums = gradient_sums(layout, k);
  for (std::int64_t c = 0; c < channels; ++c) {
    k.grad_beta[c] = T(sums[c]);
    k.grad_gamma[c] = T(sums[channels + c] * double(k.inv_std[c]));
  }
  if (k.grad_x == nullptr || k.rows == 0) return;
  const std::vector<T> slopes = wide_slopes(layout, k.inv_std, k.gamma);
  if (!k.batch_statistics) {
    return map_rows(layout, [grad_y = k.grad_y, grad_x = k.grad_x, s = slopes.data()](
                                std::int64_t i, std::int64_t c) { grad_x[i] = grad_y[i] * s[c]; });
  }
  // grad_x = slope * (grad_y - mean(grad_y) - xhat * mean(grad_y * xhat))
  std::vector<double> mean_grad(channels), projection(channels);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double inverse = double(k.inv_std[c]);
    mean_grad[c] = sums[c] / double(k.rows);
    projection[c] = sums[channels + c] / double(k.rows) * inverse * inverse;
  }
  const std::vector<T> means = widen<T>(layout, k.mean);
  const std::vector<T> shifts = widen<T>(layout, mean_grad.data());
  const std::vector<T> factors = widen<T>(layout, projection.data());
  map_rows(layout,
           [x = k.x, grad_y = k.grad_y, grad_x = k.grad_x, m = means.data(), s = slopes.data(),
            g = shifts.data(), p = factors.data()](std::int64_t i, std::int64_t c) {
             grad_x[i] = s[c] * ((grad_y[i] - g[c]) - (x[i] - m[c]) * p[c]);
           });
}

template struct CpuKernels<NormKernels>;

}  // namespace steelyard::kernels
