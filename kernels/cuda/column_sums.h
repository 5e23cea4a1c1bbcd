// Sums over the rows of [batches, rows, columns] arrays, in double and in an order that only the
// sizes decide: blocks sum chunks of rows, then the last block of every few columns adds theirs.
#pragma once

#include <algorithm>
#include <bit>

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/last_block.h"

namespace steelyard::kernels::cuda {

// How rows and columns are shared among blocks of kThreads threads: a block has `width`
// neighbouring columns, a thread of it one column and every lanes()-th row of the block's chunk.
struct RowChunks {
  std::int64_t batches, rows, columns;
  std::int64_t chunk_rows;
  Divisor chunks;  // of every batch; several only of fewer than kArrivals tiles
  Divisor tiles;   // blocks side by side
  int width;       // a power of two

  __device__ int lanes() const { return kThreads / width; }
  std::int64_t blocks() const { return batches * chunks * tiles; }
};

struct RowChunkLimits {
  std::int64_t blocks = CudaQueue::kArrivals;  // what fills a large GPU
  std::int64_t rows_of_thread = 8;             // what pays for a partial sum
  std::uint64_t width = 32;                    // a warp reads 32 neighbours
};

inline RowChunks make_row_chunks(std::int64_t batches, std::int64_t rows, std::int64_t columns,
                                 const RowChunkLimits& limits = {}) {
  const auto width = static_cast<int>(std::min(
      limits.width, std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, columns)))));
  const std::int64_t tiles = (columns + width - 1) / width;
  const std::int64_t most =
      std::max<std::int64_t>(1, limits.blocks / std::max<std::int64_t>(1, batches * tiles));
  const std::int64_t least_rows = limits.rows_of_thread * (kThreads / width);
  const std::int64_t chunk_rows = std::max(least_rows, (rows + most - 1) / most);
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + chunk_rows - 1) / chunk_rows);
  return {batches, rows, columns, chunk_rows, chunks, tiles, width};
}

// The running thread's part: rows [first, last) of a batch in steps of lanes(), one column.
struct RowsOfThread {
  std::int64_t batch, chunk, tile, first, last, column;
  int lane;
  bool has_column;
};

__device__ inline RowsOfThread rows_of_thread(const RowChunks& r) {
  const std::int64_t above = divide(blockIdx.x, r.tiles);  // batch * chunks + chunk
  const std::int64_t batch = divide(above, r.chunks);
  const std::int64_t chunk = above - batch * r.chunks;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread / r.width;
  const std::int64_t tile = blockIdx.x - above * r.tiles;
  const std::int64_t column = tile * r.width + thread % r.width;
  const std::int64_t end = (chunk + 1) * r.chunk_rows;
  return {batch,
          chunk,
          tile,
          chunk * r.chunk_rows + lane,
          end < r.rows ? end : r.rows,
          column,
          lane,
          column < r.columns};
}

// What the lanes of a column found, joined in halves, for lane 0; needs kThreads T of shared
// memory. All threads of the block call it.
template <typename T, class Join>
__device__ inline T join_columns(const RowChunks& r, const T& mine, const Join& join) {
  T* shared = shared_memory<T>();
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = mine;
  for (int half = kThreads / 2; half >= r.width; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] = join(shared[thread], shared[thread + half]);
  }
  return shared[thread];
}

template <int N>
struct Sums {
  double of[N];
};
template <int N>
__device__ inline Sums<N>& operator+=(Sums<N>& a, const Sums<N>& b) {
#pragma unroll
  for (int n = 0; n < N; ++n) a.of[n] += b.of[n];
  return a;
}

// join_columns() of sums, with the threads' n-th ones side by side: no two of a warp lie in one
// bank of shared memory.
template <int N>
__device__ inline Sums<N> add_lanes(const RowChunks& r, const Sums<N>& mine) {
  const int thread = static_cast<int>(threadIdx.x);
  double* shared = shared_memory<double>() + thread;
#pragma unroll
  for (int n = 0; n < N; ++n) shared[n * kThreads] = mine.of[n];
  for (int half = kThreads / 2; half >= r.width; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
#pragma unroll
    for (int n = 0; n < N; ++n) shared[n * kThreads] += shared[n * kThreads + half];
  }
  Sums<N> sums;
#pragma unroll
  for (int n = 0; n < N; ++n) sums.of[n] = shared[n * kThreads];
  return sums;
}

// Whether the running block is the last of its columns' chunks, for all of its threads, which call
// together.
__device__ inline bool is_last_chunk(const RowChunks& r, const RowsOfThread& mine,
                                     std::uint32_t* arrivals) {
  return is_last_block(r.chunks, arrivals + mine.batch * r.tiles + mine.tile);
}

// The partial sums of a column's chunks lane, lane + lanes(), ...; sums of one chunk lie `step`
// apart. About eight are on their way from memory together.
template <int N>
__device__ inline Sums<N> sums_of_chunks(const RowChunks& r, const double* column,
                                         std::int64_t step, int lane) {
  Sums<N> sums{};
  read_ahead<(N < 8 ? 8 / N : 1)>(
      lane, r.chunks, r.lanes(),
      [&](std::int64_t chunk) {
        Sums<N> partial;
#pragma unroll
        for (int n = 0; n < N; ++n) partial.of[n] = column[n * step + chunk * r.columns];
        return partial;
      },
      [&](std::int64_t, const Sums<N>& partial) { sums += partial; });
  return sums;
}

// Adds the N terms term(batch, row, column).of of every element; a term that writes does so in
// term.store(row, column, terms); one that is costly adds them itself, in term.add(batch, row,
// column, sums). Then finish(rows, at, sums) has the sums of column `at` of all batches' columns.
// Partial sums lie at [n, batch, chunk, column].
template <int N, typename Term, typename Finish>
__global__ void __launch_bounds__(kThreads)
    sum_columns_kernel(RowChunks r, Term term, Finish finish, double* partials,
                       std::uint32_t* arrivals) {
  const RowsOfThread mine = rows_of_thread(r);
  Sums<N> sums{};
  if constexpr (requires { term.add(mine.batch, mine.first, mine.column, sums); }) {
    for (std::int64_t row = mine.first; row < mine.last && mine.has_column; row += r.lanes()) {
      term.add(mine.batch, row, mine.column, sums);
    }
  } else if (mine.has_column) {
    using Terms = std::remove_cvref_t<decltype(term(0, 0, 0))>;
    read_ahead<4>(
        mine.first, mine.last, r.lanes(),
        [&](std::int64_t row) { return term(mine.batch, row, mine.column); },
        [&](std::int64_t row, const Terms& terms) {
          if constexpr (requires { term.store(row, mine.column, terms); }) {
            term.store(row, mine.column, terms);
          }
#pragma unroll
          for (int n = 0; n < N; ++n) sums.of[n] += static_cast<double>(terms.of[n]);
        });
  }
  sums = add_lanes(r, sums);
  const bool has_sums = mine.lane == 0 && mine.has_column;
  if (r.chunks > 1) {
    for (int n = 0; n < N && has_sums; ++n) {
      partials[((n * r.batches + mine.batch) * r.chunks + mine.chunk) * r.columns + mine.column] =
          sums.of[n];
    }
    if (!is_last_chunk(r, mine, arrivals)) return;
    const double* column = partials + mine.batch * r.chunks * r.columns + mine.column;
    sums = {};
    if (mine.has_column) {
      sums = sums_of_chunks<N>(r, column, r.batches * r.chunks * r.columns, mine.lane);
    }
    sums = add_lanes(r, sums);
  }
  if (has_sums) finish(r, mine.batch * r.columns + mine.column, sums.of);
}

template <int N, typename Term, typename Finish>
void sum_columns(const CudaQueue& queue, const RowChunks& r, const Term& term,
                 const Finish& finish) {
  const Scratch<double> partials(queue, r.chunks > 1 ? N * r.batches * r.chunks * r.columns : 0);
  launch(sum_columns_kernel<N, Term, Finish>, {r.blocks(), kThreads, N * kThreads * sizeof(double)},
         stream_of(queue), r, term, finish, partials.data(), queue.arrivals);
}

// totals[batch, column, N] = the sums.
template <typename T, int N = 1>
struct StoreColumnSums {
  T* totals;

  __device__ void operator()(const RowChunks&, std::int64_t at, const double (&sums)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) totals[at * N + n] = static_cast<T>(sums[n]);
  }
};

}  // namespace steelyard::kernels::cuda
