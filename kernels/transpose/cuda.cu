// Transposes tiles in shared memory.
#include "steelyard/kernels/transpose/transpose.h"

#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {
namespace {

constexpr int kTile = 32;
constexpr int kPitch = kTile + 1;  // the columns of a tile lie in different banks

// A block, one tile of one matrix [rows, columns].
template <typename T>
__global__ void transpose_kernel(std::int64_t rows, std::int64_t columns, const T* x, T* y) {
  T* tile = cuda::shared_memory<T>();
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile;
  const std::int64_t column_tiles = (columns + kTile - 1) / kTile;
  const std::int64_t band = blockIdx.x / column_tiles;
  const std::int64_t matrix = band / row_tiles;
  const std::int64_t first_row = (band - matrix * row_tiles) * kTile;
  const std::int64_t first_column = (blockIdx.x - band * column_tiles) * kTile;
  const T* from = x + matrix * rows * columns;
  T* to = y + matrix * rows * columns;
  const int across = static_cast<int>(threadIdx.x % kTile);
  const int down = static_cast<int>(threadIdx.x / kTile);
  constexpr int kStep = cuda::kThreads / kTile;
  for (int k = down; k < kTile && first_row + k < rows; k += kStep) {
    const std::int64_t column = first_column + across;
    if (column < columns) tile[k * kPitch + across] = from[(first_row + k) * columns + column];
  }
  __syncthreads();
  for (int k = down; k < kTile && first_column + k < columns; k += kStep) {
    const std::int64_t row = first_row + across;
    if (row < rows) to[(first_column + k) * rows + row] = tile[across * kPitch + k];
  }
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const Transpose<T>& kernel) {
  const std::int64_t tiles =
      ((kernel.rows + kTile - 1) / kTile) * ((kernel.columns + kTile - 1) / kTile);
  cuda::launch(transpose_kernel<T>,
               {.blocks = kernel.batch * tiles,
                .threads = cuda::kThreads,
                .shared_bytes = kTile * kPitch * sizeof(T)},
               cuda::stream_of(queue), kernel.rows, kernel.columns, kernel.x, kernel.y);
}

template struct CudaKernels<TransposeKernels>;

}  // namespace steelyard::kernels
