// A mean loss of rows that is computed for some of them at a time.
#pragma once

#include <functional>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// The recorded mean over the rows of x [..., F] of loss(rows, first), which gives that of rows [n,
// F], those of x from `first` on, `at_once` of them, a multiple of 16, but for the last. The
// gradients of x and of those of `parameters` that the loss depends on are computed with it, and
// are all that is kept: what the loss makes of some rows is gone before the next ones come. Their
// sums over rows have another order than those of one pass.
Variable loss_by_rows(
    const Variable& x, std::int64_t at_once, const std::vector<Variable>& parameters,
    const std::function<Variable(const Variable& rows, std::int64_t first)>& loss);

// Rows `first` to first + count of x, whose rows are the last dimension, in its memory; `first` is
// a multiple of 16.
Tensor rows_within(const Tensor& x, std::int64_t first, std::int64_t count);

}  // namespace steelyard
