#include "steelyard/framework/ops/moves/gather.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/embedding/embedding.h"

namespace steelyard {
namespace {

class GatherFunction : public Function {
 public:
  GatherFunction(Tensor indices, std::size_t axis) : axis_(axis) { save(std::move(indices)); }
  std::string name() const override { return "gather"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {ops::gradient_of_rows("gather", inputs()[0]->shape, saved()[0], axis_, grad_output)};
  }

 private:
  std::size_t axis_;
};

std::int64_t size_of(Shape::const_iterator begin, Shape::const_iterator end) {
  return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
}

std::size_t checked_axis(const Variable& x, std::int64_t axis) {
  const std::int64_t rank = std::ssize(x.shape());
  if (axis < -rank || axis >= rank) {
    ops::fail("gather", "an axis of " + shape_string(x.shape()), std::to_string(axis));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

void require_indices(const Variable& x, const Tensor& indices, std::int64_t extent) {
  const std::int64_t at = ops::first_outside("gather", indices, extent);
  if (indices.device() != x.value().device()) {
    ops::fail("gather", "indices on " + device_name(x.value().device()),
              device_name(indices.device()));
  }
  if (at < 0) return;
  throw std::out_of_range("[gather] expected indices in [0, " + std::to_string(extent) + "), got " +
                          std::to_string(indices.span<std::int64_t>()[at]) + " at place " +
                          std::to_string(at));
}

}  // namespace

namespace ops {

std::int64_t first_outside(const char* op, const Tensor& indices, std::int64_t extent) {
  require_defined(op, "i64 indices", indices);
  if (indices.dtype() != DType::kI64) {
    fail(op, "i64 indices", std::string(dtype_name(indices.dtype())));
  }
  if (indices.device().kind != Device::Kind::kCpu) return -1;  // the kernel marks them
  const auto all = indices.span<std::int64_t>();
  const auto outside = std::find_if(
      all.begin(), all.end(), [&](std::int64_t index) { return index < 0 || index >= extent; });
  return outside == all.end() ? -1 : outside - all.begin();
}

Tensor rows_at(const char* op, const Tensor& x, const Tensor& indices, std::size_t axis) {
  const auto at = x.shape().begin() + static_cast<std::ptrdiff_t>(axis);
  Shape shape(x.shape().begin(), at);
  shape.insert(shape.end(), indices.shape().begin(), indices.shape().end());
  shape.insert(shape.end(), at + 1, x.shape().end());
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    if (y.size() == 0) return;
    run(y.device(), kernels::Gather<T>{.rows = size_of(x.shape().begin(), at) * indices.size(),
                                       .columns = size_of(at + 1, x.shape().end()),
                                       .count = indices.size(),
                                       .extent = *at,
                                       .indices = indices.data<std::int64_t>(),
                                       .x = x.data<T>(),
                                       .y = y.data<T>()});
  });
  return y;
}

Tensor gradient_of_rows(const char* op, const Shape& x, const Tensor& indices, std::size_t axis,
                        const Tensor& grad_output) {
  const auto at = x.begin() + static_cast<std::ptrdiff_t>(axis);
  Tensor grad_x = Tensor::empty(x, grad_output.dtype(), grad_output.device());
  visit_floating(grad_x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    if (grad_x.size() == 0) return;
    run(grad_x.device(), kernels::GatherBackward<T>{.outer = size_of(x.begin(), at),
                                                    .count = indices.size(),
                                                    .width = size_of(at + 1, x.end()),
                                                    .extent = *at,
                                                    .indices = indices.data<std::int64_t>(),
                                                    .grad_y = grad_output.data<T>(),
                                                    .grad_x = grad_x.data<T>()});
  });
  return grad_x;
}

}  // namespace ops

Variable gather(const Variable& x, const Tensor& indices, std::int64_t axis) {
  ops::require_defined("gather", "a tensor", x);
  const std::size_t along = checked_axis(x, axis);
  require_indices(x, indices, x.shape()[along]);
  Tensor y = ops::rows_at("gather", x.value(), indices, along);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<GatherFunction>(indices, along), {x});
}

}  // namespace steelyard
