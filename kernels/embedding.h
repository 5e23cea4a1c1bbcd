// Rows of a table chosen by index.
#pragma once

#include <cstdint>

namespace steelyard::kernels {

// y[i, :] = table[indices[i], :]. Indices must lie in the table (checked by the caller).
template <typename T>
void embedding_forward(std::int64_t count, std::int64_t width, const std::int64_t* indices,
                       const T* table, T* y);

// grad_table[rows, width] = sums of grad_y[i, :] over the i of each row, in the order of i.
template <typename T>
void embedding_backward(std::int64_t count, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const T* grad_y, T* grad_table);

}  // namespace steelyard::kernels
