// Rows of a table chosen by index.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// y[i, :] = table[indices[i], :] of table[rows, width]. Indices must lie in the table (checked by
// the caller).
template <typename T>
void embedding_forward(std::int64_t count, std::int64_t rows, std::int64_t width,
                       const std::int64_t* indices, const T* table, T* y);

// grad_table[rows, width] = sums of grad_y[i, :] over the i of each row, in the order of i.
template <typename T>
void embedding_backward(std::int64_t count, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const T* grad_y, T* grad_table);

// The same on a GPU, where nobody has looked at the indices: one that is not in the table gives a
// row of NaN and has no gradient.
template <typename T>
void embedding_forward(const CudaQueue& queue, std::int64_t count, std::int64_t rows,
                       std::int64_t width, const std::int64_t* indices, const T* table, T* y);
template <typename T>
void embedding_backward(const CudaQueue& queue, std::int64_t count, std::int64_t rows,
                        std::int64_t width, const std::int64_t* indices, const T* grad_y,
                        T* grad_table);

}  // namespace steelyard::kernels
