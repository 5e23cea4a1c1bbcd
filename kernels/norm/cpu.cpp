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
void compute(const BatchNormBackward<T>& k) {
  std::vector<T> memory(3 * k.channels);
  run_parts(k, memory.data(), [](const auto& part) { cpu::run_by_kind(part); });
}

template struct CpuKernels<NormKernels>;

}  // namespace steelyard::kernels
