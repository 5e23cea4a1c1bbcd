#include "steelyard/framework/ops/reductions/reduced_axes.h"

#include <algorithm>

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/pool/pool.h"

namespace steelyard::ops {
namespace {

Tensor sum_of_all(const char* op, const Tensor& x) {
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(x.device(), kernels::SumOfAll<T>{.n = x.size(), .x = x.data<T>(), .y = y.data<T>()});
  });
  return y;
}

// Whether neighbouring axes of a tensor on a GPU were summed by many threads for each sum.
bool sum_rows_on_gpu(const char* op, const Tensor& x, const std::vector<bool>& summed,
                     const Tensor& y) {
  constexpr std::int64_t kRows = 32;  // fewer are not worth it
  if (x.device().kind == Device::Kind::kCpu) return false;
  const auto first = std::find(summed.begin(), summed.end(), true);
  const auto last = std::find(first, summed.end(), false);
  if (std::find(last, summed.end(), true) != summed.end()) return false;
  const auto size = [&](auto from, auto to) {
    std::int64_t product = 1;
    for (; from != to; ++from) {
      product *= x.shape()[static_cast<std::size_t>(from - summed.begin())];
    }
    return product;
  };
  const std::int64_t rows = size(first, last);
  if (rows < kRows) return false;
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    kernels::run(cuda_queue(x.device()), kernels::RowSums<T>{.batch = size(summed.begin(), first),
                                                             .rows = rows,
                                                             .columns = size(last, summed.end()),
                                                             .x = x.data<T>(),
                                                             .sums = y.data<T>()});
  });
  return true;
}

}  // namespace

std::vector<bool> marked_axes(const char* op, const Shape& shape,
                              const std::vector<std::int64_t>& axes) {
  const std::int64_t rank = std::ssize(shape);
  std::vector<bool> marked(shape.size(), false);
  for (const std::int64_t axis : axes) {
    const std::int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || marked[static_cast<std::size_t>(at)]) {
      fail(op, "different axes of " + shape_string(shape), shape_string(axes));
    }
    marked[static_cast<std::size_t>(at)] = true;
  }
  return marked;
}

KeptAndReduced kept_and_reduced(const Shape& shape, const std::vector<bool>& marked) {
  KeptAndReduced shapes{shape, Shape(shape.size(), 1)};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (marked[axis]) std::swap(shapes.kept[axis], shapes.reduced[axis]);
  }
  return shapes;
}

Tensor sum_over(const char* op, const Tensor& x, const std::vector<bool>& summed) {
  const auto [kept, apart] = kept_and_reduced(x.shape(), summed);
  if (shape_size(kept) == 1) return sum_of_all(op, x).reshape(kept);
  const std::vector<std::int64_t> strides = row_major_strides(x.shape());
  Tensor y = Tensor::empty(kept, x.dtype(), x.device());
  if (sum_rows_on_gpu(op, x, summed, y)) return y;
  const auto at_kept = strided_index(op, kept, strides);
  const auto at_summed = strided_index(op, apart, strides);
  const std::int64_t count = shape_size(apart);
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(x.device(), kernels::SumOverAxes<T>{.n = y.size(),
                                            .x = x.data<T>(),
                                            .kept = at_kept,
                                            .count = count,
                                            .summed = at_summed,
                                            .y = y.data<T>()});
  });
  return y;
}

Tensor summed_to(const char* op, const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const std::size_t added = grad.shape().size() - shape.size();
  std::vector<bool> summed(grad.shape().size(), true);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    summed[added + i] = shape[i] != grad.shape()[added + i];
  }
  return sum_over(op, grad, summed).reshape(shape);
}

}  // namespace steelyard::ops
