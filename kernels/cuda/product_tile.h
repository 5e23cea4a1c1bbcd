// A tile of a matrix product in the registers of a block of four warps, by tensor cores. Stages of
// the operands lie in shared memory; kStages of them are on their way or in use.
#pragma once

#include <type_traits>

#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/cuda/tensor_core.h"
#include "steelyard/kernels/cuda/warp_group.h"

namespace steelyard::kernels::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr int kStages = 3;
inline constexpr int kPieceBytes = 16;  // what a lane names for load_matrices()

// Where a piece of a row of 128 bytes is: eight rows have the same piece in eight different banks
// of 16 bytes.
__device__ inline int place_of_piece(int row, int piece) {
  return row * 128 + (piece ^ (row & 7)) * kPieceBytes;
}
// Where a piece of a row of terms is, of panels one after the other.
__device__ inline int place_in_panels(int term, int piece) {
  return piece / 8 * (kPanelTerms * 128) + place_of_piece(term, piece % 8);
}

// How a product is cut.
template <typename Of, int kRows, int kColumns>
struct TileShape {
  using Operand = Of;
  static constexpr int kTileRows = kRows, kTileColumns = kColumns;
  static constexpr int kStageBytes = (kRows + kColumns) * 128;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

// What the tiles below have in common: a stage has rows of 128 bytes of the left operand,
// [kTileRows], and of the right, [kTileColumns], the terms of a sum side by side (add_rows), or
// panels of both (add_panels; Major::kTermsOfRows). for_each_pair() and for_each_column() show the
// sums.
//
// By the instructions of a warp, for all GPUs with tensor cores.
template <class Shape>
struct WarpTile {
  using Core = TensorCore<typename Shape::Operand>;
  using Sum = typename Core::Sum;
  static constexpr bool kIsLate = false;  // the products of a stage are done when add_...() returns
  static constexpr int kTileRows = Shape::kTileRows, kTileColumns = Shape::kTileColumns;
  static constexpr int kRowParts = kTileRows / 32;        // of 16 rows, of a warp
  static constexpr int kColumnParts = kTileColumns / 16;  // of 8 columns, of a warp

  Sum sums[kRowParts][kColumnParts][4] = {};

  __device__ void add_rows(const unsigned char* left) {
    constexpr int kPieces = 128 / kPieceBytes;
    const unsigned char* const right = left + kTileRows * 128;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += 2) {
      std::uint32_t a[kRowParts][4], b[kColumnParts / 2][4];
#pragma unroll
      for (int i = 0; i < kRowParts; ++i) {
        const int row = first_row() + 16 * i + lane % 16;
        load_matrices(left + place_of_piece(row, piece + lane / 16), a[i]);
      }
#pragma unroll
      for (int j = 0; j < kColumnParts / 2; ++j) {
        const int row = first_column() + 16 * j + lane % 8 + lane / 16 * 8;
        load_matrices(right + place_of_piece(row, piece + lane / 8 % 2), b[j]);
      }
      multiply(a, b);
    }
  }

  __device__ void add_panels(const unsigned char* left) {
    const unsigned char* const right = left + kTileRows * 128;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int term = 0; term < kPanelTerms; term += 16) {
      std::uint32_t a[kRowParts][4], b[kColumnParts / 2][4];
#pragma unroll
      for (int i = 0; i < kRowParts; ++i) {
        const int row = term + lane / 16 * 8 + lane % 8;
        const int piece = (first_row() + 16 * i) / 8 + lane / 8 % 2;
        load_transposed(left + place_in_panels(row, piece), a[i]);
      }
#pragma unroll
      for (int j = 0; j < kColumnParts / 2; ++j) {
        const int row = term + lane / 8 % 2 * 8 + lane % 8;
        const int piece = (first_column() + 16 * j) / 8 + lane / 16;
        load_transposed(right + place_in_panels(row, piece), b[j]);
      }
      multiply(a, b);
    }
  }

  __device__ static void wait() {}

  // use(row, column, sums of it and of the next column) for every pair of the thread, row and
  // column being those of the tile.
  template <class Use>
  __device__ void for_each_pair(const Use& use) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2 * kRowParts; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnParts; ++j) {
        use(first_row() + 8 * i + lane / 4, first_column() + 8 * j + 2 * (lane % 4),
            sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]);
      }
    }
  }

  // use(column, each) for every column of the thread; each(f) calls f(sum) for its sums.
  template <class Use>
  __device__ void for_each_column(const Use& use) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < 2 * kColumnParts; ++j) {
      use(first_column() + 8 * (j / 2) + 2 * (lane % 4) + j % 2, [&](const auto& f) {
#pragma unroll
        for (int i = 0; i < kRowParts; ++i) {
          f(sums[i][j / 2][j % 2]);
          f(sums[i][j / 2][2 + j % 2]);
        }
      });
    }
  }

 private:
  // Where the part of the running warp begins: two by two warps share the tile.
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 64 * (kTileRows / 2); }
  __device__ static int first_column() {
    return static_cast<int>(threadIdx.x) / 32 % 2 * (kTileColumns / 2);
  }

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

// By those of four warps together.
template <class Shape>
struct WarpGroupTile {
  using Operand = typename Shape::Operand;
  using Sum = typename TensorCore<Operand>::Sum;
  static constexpr bool kIsLate = true;  // ... when wait() returns
  static constexpr int kTileRows = Shape::kTileRows, kTileColumns = Shape::kTileColumns;
  static constexpr int kRowParts = kTileRows / 64;

  Sum sums[kRowParts][kTileColumns / 2] = {};

  __device__ void add_rows(const unsigned char* left) {
    begin_group_products();
#pragma unroll
    for (int byte = 0; byte < 128; byte += 32) {
#pragma unroll
      for (int i = 0; i < kRowParts; ++i) {
        multiply_by_group<Operand, Major::kRowsOfTerms, kTileColumns>(
            sums[i], left + i * 64 * 128 + byte, left + kTileRows * 128 + byte);
      }
    }
    end_group_products();
  }

  __device__ void add_panels(const unsigned char* left) {
    begin_group_products();
#pragma unroll
    for (int term = 0; term < kPanelTerms; term += 16) {
#pragma unroll
      for (int i = 0; i < kRowParts; ++i) {
        multiply_by_group<Operand, Major::kTermsOfRows, kTileColumns>(
            sums[i], left + (i * kPanelTerms + term) * 128, left + (kTileRows + term) * 128);
      }
    }
    end_group_products();
  }

  __device__ static void wait() { wait_for_group_products(); }

  template <class Use>
  __device__ void for_each_pair(const Use& use) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2 * kRowParts; ++i) {
#pragma unroll
      for (int j = 0; j < kTileColumns / 8; ++j) {
        use(i / 2 * 64 + first_row() + i % 2 * 8 + lane / 4, 8 * j + 2 * (lane % 4),
            sums[i / 2][4 * j + i % 2 * 2], sums[i / 2][4 * j + i % 2 * 2 + 1]);
      }
    }
  }

  template <class Use>
  __device__ void for_each_column(const Use& use) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kTileColumns / 4; ++j) {
      use(8 * (j / 2) + 2 * (lane % 4) + j % 2, [&](const auto& f) {
#pragma unroll
        for (int i = 0; i < kRowParts; ++i) {
          f(sums[i][j / 2 * 4 + j % 2]);
          f(sums[i][j / 2 * 4 + 2 + j % 2]);
        }
      });
    }
  }

 private:
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 32 * 16; }
};

template <class Shape>
using ProductTile =
    std::conditional_t<kByWarpGroups<Shape::kTileRows>, WarpGroupTile<Shape>, WarpTile<Shape>>;

// For each stage: start(slot) begins to bring its operands to a slot of shared memory, finish(slot)
// does what is left of that a stage later; add(slot) has them all. kAddsFirst: products that are
// late go on while start() works, which must be without loops then, or the compiler makes them wait
// for each other.
template <class Tile, bool kAddsFirst, class Start, class Finish, class Add>
__device__ void for_each_stage(int stages, const Start& start, const Finish& finish,
                               const Add& add) {
  constexpr bool kAddsBefore = Tile::kIsLate && kAddsFirst;
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
    if constexpr (kAddsBefore) Tile::wait();  // the last slot is the next one to be filled
    const int after = slot + 1 == kStages ? 0 : slot + 1;
    if (stage > 0 && stage + kStages - 2 < stages) finish(after);
    if constexpr (Tile::kIsLate) show_to_group_products();
    __syncthreads();
    if constexpr (kAddsBefore) add(slot);
    if (stage + kStages - 1 < stages) start(slot == 0 ? kStages - 1 : slot - 1);
    end_copies();
    if constexpr (!kAddsBefore) {
      add(slot);
      Tile::wait();
    }
    slot = after;
  }
  if constexpr (kAddsBefore) Tile::wait();
}

}  // namespace steelyard::kernels::cuda
