// Table lookup.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// table[indices]: i64 indices [...] and a table [N, D] give [..., D]. Throws std::out_of_range
// naming an index outside [0, N); on a GPU, where to look at it would mean to wait, such an index
// gives NaN instead.
Variable embedding(const Tensor& indices, const Variable& table);

// table[indices] for indices as a network's input holds them: floats, rounded to the nearest. They
// have no gradient.
Variable embedding(const Variable& indices, const Variable& table);

}  // namespace steelyard
