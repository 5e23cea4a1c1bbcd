// A tile of a matrix product in the registers of a block, by tensor cores: four warps, two by two,
// have a quarter each. Stages of the operands lie in shared memory; kStages of them are on their
// way or in use.
#pragma once

#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/cuda/tensor_core.h"

namespace steelyard::kernels::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr int kStages = 3;
inline constexpr int kPieceBytes = 16;  // what a lane names for load_matrices()

// Where a piece of a row of `pieces` is: eight rows of the same piece lie in eight different banks
// of 16 bytes.
__device__ inline int place_of_piece(int row, int piece, int pieces) {
  return (row * pieces + (piece ^ (row & 7))) * kPieceBytes;
}

template <typename Operand, int kRows, int kColumns>
struct ProductTile {
  using Core = TensorCore<Operand>;
  using Sum = typename Core::Sum;
  static constexpr int kTileRows = kRows, kTileColumns = kColumns;
  static constexpr int kRowParts = kRows / 32;        // of 16 rows, of a warp
  static constexpr int kColumnParts = kColumns / 16;  // of 8 columns, of a warp
  static constexpr int kStageBytes = (kRows + kColumns) * 128;
  static constexpr int kSharedBytes = kStages * kStageBytes;

  Sum sums[kRowParts][kColumnParts][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRowParts; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnParts; ++j) {
#pragma unroll
        for (int n = 0; n < 4; ++n) sums[i][j][n] = 0;
      }
    }
  }

  // Of the running warp.
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 64 * (kRows / 2); }
  __device__ static int first_column() {
    return static_cast<int>(threadIdx.x) / 32 % 2 * (kColumns / 2);
  }

  // Adds a stage's products: rows of 128 bytes of the left operand, [kRows], and of the right,
  // [kColumns], the terms of a sum side by side.
  __device__ void add_rows(const unsigned char* left, const unsigned char* right) {
    constexpr int kPieces = 128 / kPieceBytes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += 2) {
      std::uint32_t a[kRowParts][4], b[kColumnParts / 2][4];
#pragma unroll
      for (int i = 0; i < kRowParts; ++i) {
        const int row = first_row() + 16 * i + lane % 16;
        load_matrices(left + place_of_piece(row, piece + lane / 16, kPieces), a[i]);
      }
#pragma unroll
      for (int j = 0; j < kColumnParts / 2; ++j) {
        const int row = first_column() + 16 * j + lane % 8 + lane / 16 * 8;
        load_matrices(right + place_of_piece(row, piece + lane / 8 % 2, kPieces), b[j]);
      }
      multiply(a, b);
    }
  }

  // The same of kTerms rows for each operand, a row having one term of all sums, elements of two
  // bytes: left [kTerms, kRows], right [kTerms, kColumns].
  template <int kTerms>
  __device__ void add_columns(const unsigned char* left, const unsigned char* right) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int term = 0; term < kTerms; term += 16) {
      std::uint32_t a[kRowParts][4], b[kColumnParts / 2][4];
#pragma unroll
      for (int i = 0; i < kRowParts; ++i) {
        const int row = term + lane / 16 * 8 + lane % 8;
        const int piece = (first_row() + 16 * i) / 8 + lane / 8 % 2;
        load_transposed(left + place_of_piece(row, piece, kRows / 8), a[i]);
      }
#pragma unroll
      for (int j = 0; j < kColumnParts / 2; ++j) {
        const int row = term + lane / 8 % 2 * 8 + lane % 8;
        const int piece = (first_column() + 16 * j) / 8 + lane / 16;
        load_transposed(right + place_of_piece(row, piece, kColumns / 8), b[j]);
      }
      multiply(a, b);
    }
  }

  // use(column, each) for every column of the thread; each(f) calls f(sum) for its sums.
  template <class Use>
  __device__ void for_each_column(const Use& use) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kColumnParts; ++j) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        use(first_column() + 8 * j + 2 * (lane % 4) + next, [&](const auto& f) {
#pragma unroll
          for (int i = 0; i < kRowParts; ++i) {
            f(sums[i][j][next]);
            f(sums[i][j][2 + next]);
          }
        });
      }
    }
  }

  // use(row, column, sums of it and of the next column) for every pair of the thread, row and
  // column being those of the tile.
  template <class Use>
  __device__ void for_each_pair(const Use& use) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kRowParts; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kColumnParts; ++j) {
          use(first_row() + 16 * i + 8 * half + lane / 4, first_column() + 8 * j + 2 * (lane % 4),
              sums[i][j][2 * half], sums[i][j][2 * half + 1]);
        }
      }
    }
  }

 private:
  __device__ void multiply(const std::uint32_t (&a)[kRowParts][4],
                           const std::uint32_t (&b)[kColumnParts / 2][4]) {
#pragma unroll
    for (int i = 0; i < kRowParts; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnParts; ++j) {
        Core::multiply_add(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
};

// For each stage: start(slot) begins to bring its operands to a slot of shared memory, finish(slot)
// does what is left of that, after the sums of the stage two before; add(slot) has them all.
template <class Start, class Finish, class Add>
__device__ void for_each_stage(int stages, const Start& start, const Finish& finish,
                               const Add& add) {
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < stages) {
      start(stage);
      finish(stage);
    }
    end_copies();
  }
  for (int stage = 0, slot = 0; stage < stages; ++stage) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const bool has_next = stage + kStages - 1 < stages;
    const int next = slot == 0 ? kStages - 1 : slot - 1;
    if (has_next) start(next);
    end_copies();
    add(slot);
    if (has_next) finish(next);
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
}

}  // namespace steelyard::kernels::cuda
