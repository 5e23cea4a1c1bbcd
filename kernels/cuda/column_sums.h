// Sums over the rows of [batches, rows, columns] arrays, in double and in an order that only the
// sizes decide: blocks sum chunks of rows, then each column's partial sums are added.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {

// How rows and columns are shared among blocks of kThreads threads: a block has `width`
// neighbouring columns, a thread of it one column and every lanes()-th row of the block's chunk.
struct RowChunks {
  std::int64_t batches, rows, columns;
  std::int64_t chunk_rows, chunks;  // of every batch
  std::int64_t tiles;               // blocks side by side
  int width;                        // a power of two

  __device__ int lanes() const { return kThreads / width; }
  std::int64_t blocks() const { return batches * chunks * tiles; }
};

inline RowChunks make_row_chunks(std::int64_t batches, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kBlocks = 2048;     // what fills a large GPU
  constexpr std::int64_t kRowsOfThread = 8;  // what pays for a partial sum
  constexpr std::uint64_t kWidest = 32;      // a warp reads 32 neighbours
  const auto width = static_cast<int>(std::min(
      kWidest, std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, columns)))));
  const std::int64_t tiles = (columns + width - 1) / width;
  const std::int64_t most =
      std::max<std::int64_t>(1, kBlocks / std::max<std::int64_t>(1, batches * tiles));
  const std::int64_t least_rows = kRowsOfThread * (kThreads / width);
  const std::int64_t chunk_rows = std::max(least_rows, (rows + most - 1) / most);
  return {batches, rows, columns, chunk_rows, (rows + chunk_rows - 1) / chunk_rows, tiles, width};
}

// The running thread's part: rows [first, last) of a batch in steps of lanes(), one column.
struct RowsOfThread {
  std::int64_t batch, chunk, first, last, column;
  int lane;
  bool has_column;
};

__device__ inline RowsOfThread rows_of_thread(const RowChunks& r) {
  const std::int64_t above = divide(blockIdx.x, r.tiles);  // batch * chunks + chunk
  const std::int64_t batch = divide(above, r.chunks);
  const std::int64_t chunk = above - batch * r.chunks;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread / r.width;
  const std::int64_t column = (blockIdx.x - above * r.tiles) * r.width + thread % r.width;
  const std::int64_t end = (chunk + 1) * r.chunk_rows;
  return {batch,  chunk, chunk * r.chunk_rows + lane, end < r.rows ? end : r.rows,
          column, lane,  column < r.columns};
}

// Lane 0's sums become those of its column's lanes, added in halves; needs N * kThreads doubles of
// shared memory. All threads of the block call it.
template <int N>
__device__ inline void add_lanes(const RowChunks& r, double (&sums)[N]) {
  double* shared = shared_memory<double>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int n = 0; n < N; ++n) shared[n * kThreads + thread] = sums[n];
  for (int half = kThreads / 2; half >= r.width; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    for (int n = 0; n < N; ++n) {
      shared[n * kThreads + thread] += shared[n * kThreads + thread + half];
    }
  }
  for (int n = 0; n < N; ++n) sums[n] = shared[n * kThreads + thread];
}

// Calls term(batch, row, column, a, b, p, q, sums) for every element; the term adds to N sums. a,
// b, p and q are the arrays it reads, null where it needs fewer. Partial sums lie at [n, batch,
// chunk, column].
template <int N, typename T, typename Term>
__global__ void __launch_bounds__(kThreads)
    partial_sums_kernel(RowChunks r, Term term, const T* a, const T* b, const T* p, const T* q,
                        double* partials) {
  const RowsOfThread mine = rows_of_thread(r);
  double sums[N] = {};
  if (mine.has_column) {
    for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
      term(mine.batch, row, mine.column, a, b, p, q, sums);
    }
  }
  add_lanes(r, sums);
  if (mine.lane != 0 || !mine.has_column) return;
  for (int n = 0; n < N; ++n) {
    partials[((n * r.batches + mine.batch) * r.chunks + mine.chunk) * r.columns + mine.column] =
        sums[n];
  }
}

// The running thread's column in a grid of a block for every tile of every batch.
struct ColumnOfThread {
  std::int64_t batch, column;
  int lane;
  bool has_column;
};

__device__ inline ColumnOfThread column_of_thread(const RowChunks& r) {
  const std::int64_t batch = divide(blockIdx.x, r.tiles);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t column = (blockIdx.x - batch * r.tiles) * r.width + thread % r.width;
  return {batch, column, thread / r.width, column < r.columns};
}

// Adds the partial sums of the thread's column. Returns batch * columns + column in the thread that
// has the total, -1 in all others.
template <int N>
__device__ inline std::int64_t total_of_column(const RowChunks& r, const double* partials,
                                               double (&sums)[N]) {
  const ColumnOfThread mine = column_of_thread(r);
  for (int n = 0; n < N; ++n) {
    sums[n] = 0;
    if (!mine.has_column) continue;
    const double* column =
        partials + (n * r.batches + mine.batch) * r.chunks * r.columns + mine.column;
    for (std::int64_t chunk = mine.lane; chunk < r.chunks; chunk += r.lanes()) {
      sums[n] += column[chunk * r.columns];
    }
  }
  add_lanes(r, sums);
  return mine.lane == 0 && mine.has_column ? mine.batch * r.columns + mine.column : -1;
}

// totals[batch, column] of one term.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    column_totals_kernel(RowChunks r, const double* partials, T* totals) {
  double sums[1];
  const std::int64_t at = total_of_column(r, partials, sums);
  if (at >= 0) totals[at] = static_cast<T>(sums[0]);
}

// The partial sums of N terms; memory until the end of the scope.
template <int N>
class PartialSums {
 public:
  PartialSums(const CudaQueue& queue, const RowChunks& rows)
      : queue_(queue),
        rows_(rows),
        partials_(queue, N * rows.batches * rows.chunks * rows.columns) {}

  template <typename T, typename Term>
  void add_up(const Term& term, const T* a, const T* b, const T* p, const T* q) const {
    launch(partial_sums_kernel<N, T, Term>, {rows_.blocks(), kThreads, kSharedBytes},
           stream_of(queue_), rows_, term, a, b, p, q, partials_.data());
  }

  // Starts kernel(rows, partials, arguments...), where total_of_column<N>() gives the totals.
  template <typename... Parameters, typename... Arguments>
  void launch_totals(void (*kernel)(RowChunks, const double*, Parameters...),
                     Arguments&&... arguments) const {
    launch(kernel, {rows_.batches * rows_.tiles, kThreads, kSharedBytes}, stream_of(queue_), rows_,
           static_cast<const double*>(partials_.data()), std::forward<Arguments>(arguments)...);
  }

 private:
  static constexpr std::size_t kSharedBytes = N * kThreads * sizeof(double);

  const CudaQueue& queue_;
  RowChunks rows_;
  Scratch<double> partials_;
};

}  // namespace steelyard::kernels::cuda
