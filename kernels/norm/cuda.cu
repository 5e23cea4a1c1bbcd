#include "steelyard/kernels/norm/norm.h"

#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// Moments of every chunk, about its first row: deviations from a value of the same column do not
// cancel. Means lie at [chunk, column], then sums of squared deviations; the last block of a column
// merges them.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(RowChunks r, BatchMoments<T> k, double* partials, std::uint32_t* arrivals) {
  const RowsOfThread mine = rows_of_thread(r);
  Sums<3> sums{};  // count, deviations, their squares
  double near = 0;
  if (mine.has_column && mine.first < mine.last) {
    near = static_cast<double>(k.x[mine.chunk * r.chunk_rows * r.columns + mine.column]);
    read_ahead<4>(
        mine.first, mine.last, r.lanes(),
        [&](std::int64_t row) { return k.x[row * r.columns + mine.column]; },
        [&](std::int64_t, T value) {
          const double deviation = static_cast<double>(value) - near;
          sums.of[0] += 1;
          sums.of[1] += deviation;
          sums.of[2] += deviation * deviation;
        });
  }
  sums = add_lanes(r, sums);
  const bool has_sums = mine.lane == 0 && mine.has_column;
  const Moments of_chunk = moments_about(sums.of[0], near, sums.of[1], sums.of[2]);
  if (has_sums) {
    const std::int64_t at = mine.chunk * r.columns + mine.column;
    partials[at] = of_chunk.mean;
    partials[r.chunks * r.columns + at] = of_chunk.squares;
  }
  if (r.chunks == 1) {
    __syncthreads();  // until sums have been read
  } else if (!is_last_chunk(r, mine, arrivals)) {
    return;
  }
  Moments moments;
  if (mine.has_column) {
    read_ahead<4>(
        mine.lane, r.chunks, r.lanes(),
        [&](std::int64_t chunk) {
          const std::int64_t end = (chunk + 1) * r.chunk_rows;
          const std::int64_t rows = (end < r.rows ? end : r.rows) - chunk * r.chunk_rows;
          const std::int64_t at = chunk * r.columns + mine.column;
          return Moments{static_cast<double>(rows), partials[at],
                         partials[r.chunks * r.columns + at]};
        },
        [&](std::int64_t, const Moments& of_one) { moments = merged(moments, of_one); });
  }
  moments =
      join_columns(r, moments, [](const Moments& a, const Moments& b) { return merged(a, b); });
  if (!has_sums) return;
  k.mean[mine.column] = static_cast<T>(moments.mean);
  k.variance[mine.column] = static_cast<T>(moments.squares / static_cast<double>(r.rows));
}

}  // namespace
}  // namespace cuda

template <typename T>
void compute(const CudaQueue& queue, const BatchMoments<T>& k) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, k.rows, k.channels);
  const cuda::Scratch<double> partials(queue, 2 * r.chunks * k.channels);
  cuda::launch(cuda::moments_kernel<T>,
               {r.blocks(), cuda::kThreads, cuda::kThreads * sizeof(Moments)},
               cuda::stream_of(queue), r, k, partials.data(), queue.arrivals);
}

template <typename T>
void compute(const CudaQueue& queue, const BatchNormBackward<T>& k) {
  const cuda::Scratch<T> memory(queue, 3 * k.channels);
  run_parts(k, memory.data(), [&](const auto& part) { cuda::run_by_kind(queue, part); });
}

template struct CudaKernels<NormKernels>;

}  // namespace steelyard::kernels
