// Where the blocks of a matrix lie: rectangles of rows and columns that share a scale.
#pragma once

#include <cstdint>

#include "steelyard/kernels/divide.h"

namespace steelyard::kernels {

// Blocks row by row; those of the last rows may have fewer, columns are divided evenly.
struct Blocks {
  std::int64_t columns, rows;
  std::int64_t block_rows, block_columns;
  std::int64_t blocks_of_row;

  std::int64_t count() const {
    return rows == 0 ? 0 : (rows + block_rows - 1) / block_rows * blocks_of_row;
  }
  // The block of element i.
  STEELYARD_HOST_DEVICE std::int64_t of(std::int64_t i) const {
    const std::int64_t row = divide(i, columns), column = i - row * columns;
    return divide(row, block_rows) * blocks_of_row + divide(column, block_columns);
  }
};

}  // namespace steelyard::kernels
