// NHWC and NCHW: batches of matrices, transposed by tiles in shared memory.
#include "kernels/cuda/grid.h"
#include "kernels/elementwise.h"

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

template <typename T>
void transpose(const CudaQueue& queue, std::int64_t batch, std::int64_t rows, std::int64_t columns,
               const T* x, T* y) {
  const std::int64_t tiles = ((rows + kTile - 1) / kTile) * ((columns + kTile - 1) / kTile);
  cuda::launch(transpose_kernel<T>,
               {.blocks = batch * tiles,
                .threads = cuda::kThreads,
                .shared_bytes = kTile * kPitch * sizeof(T)},
               cuda::stream_of(queue), rows, columns, x, y);
}

}  // namespace

template <typename T>
void nhwc_to_nchw(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                  std::int64_t channels, const T* x, T* y) {
  transpose(queue, batch, pixels, channels, x, y);
}

template <typename T>
void nchw_to_nhwc(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                  std::int64_t channels, const T* x, T* y) {
  transpose(queue, batch, channels, pixels, x, y);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*, \
                             T*);                                                                  \
  template void nchw_to_nhwc(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*, \
                             T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
template void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                           const std::int8_t*, std::int8_t*);
template void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                           const std::uint8_t*, std::uint8_t*);

}  // namespace steelyard::kernels
