#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/transpose/transpose.h"

namespace steelyard::kernels {

namespace {

constexpr std::int64_t kBlock = 16;

// Rows [r0, r1) of one matrix, in blocks that stay in the cache.
template <typename T>
void transpose_blocks(std::int64_t rows, std::int64_t columns, std::int64_t r0, std::int64_t r1,
                      const T* from, T* to) {
  for (std::int64_t c0 = 0; c0 < columns; c0 += kBlock) {
    const std::int64_t c1 = std::min(columns, c0 + kBlock);
    for (std::int64_t c = c0; c < c1; ++c) {
      for (std::int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
    }
  }
}

// Columns [c0, c1) of a matrix with few rows, such as the channels of an image: each row is read
// from its beginning to its end, so that vectors of all of them are woven into the output.
template <std::int64_t kRows, typename T>
void interleave(std::int64_t columns, std::int64_t c0, std::int64_t c1, const T* from, T* to) {
  for (std::int64_t c = c0; c < c1; ++c) {
    for (std::int64_t r = 0; r < kRows; ++r) to[c * kRows + r] = from[r * columns + c];
  }
}

template <typename T>
void interleave_rows(const Transpose<T>& kernel) {
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t pieces = (kernel.columns + kPiece - 1) / kPiece;
  parallel_for(kernel.batch * pieces, kMapGrain / kPiece + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t matrix = i / pieces * kernel.rows * kernel.columns;
                   const std::int64_t c0 = i % pieces * kPiece;
                   const std::int64_t c1 = std::min(kernel.columns, c0 + kPiece);
                   const T* const from = kernel.x + matrix;
                   T* const to = kernel.y + matrix;
                   switch (kernel.rows) {
                     case 1:
                       interleave<1>(kernel.columns, c0, c1, from, to);
                       break;
                     case 2:
                       interleave<2>(kernel.columns, c0, c1, from, to);
                       break;
                     case 3:
                       interleave<3>(kernel.columns, c0, c1, from, to);
                       break;
                     default:
                       interleave<4>(kernel.columns, c0, c1, from, to);
                   }
                 }
               });
}

}  // namespace

template <typename T>
void compute(const Transpose<T>& kernel) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  if (rows >= 1 && rows <= 4) return interleave_rows(kernel);
  const std::int64_t bands = (rows + kBlock - 1) / kBlock;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kMapGrain / (kBlock * std::max<std::int64_t>(columns, 1)));
  parallel_for(kernel.batch * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t band = begin; band < end; ++band) {
      const std::int64_t matrix = band / bands * rows * columns, r0 = band % bands * kBlock;
      transpose_blocks(rows, columns, r0, std::min(rows, r0 + kBlock), kernel.x + matrix,
                       kernel.y + matrix);
    }
  });
}

template struct CpuKernels<TransposeKernels>;

}  // namespace steelyard::kernels
