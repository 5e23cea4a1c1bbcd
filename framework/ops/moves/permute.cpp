#include "steelyard/framework/ops/moves/permute.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/transpose/transpose.h"

namespace steelyard {
namespace {

using Order = std::vector<std::int64_t>;

// The same move with fewer dimensions: those of size 1 are left out, and those that stay together
// are one. `sizes` are the input's.
struct PlainMove {
  Shape sizes;
  Order order;
};

PlainMove plain_move(const Shape& x, const Order& order) {
  Shape sizes;  // the input's, without those of 1
  Order places(x.size());
  for (std::size_t d = 0; d < x.size(); ++d) {
    places[d] = static_cast<std::int64_t>(sizes.size());
    if (x[d] != 1) sizes.push_back(x[d]);
  }
  Order moved;
  for (const std::int64_t d : order) {
    const auto of = static_cast<std::size_t>(d);
    if (x[of] != 1) moved.push_back(places[of]);
  }
  std::vector<bool> begins(sizes.size());
  for (std::size_t i = 0; i < moved.size(); ++i) {
    begins[static_cast<std::size_t>(moved[i])] = i == 0 || moved[i] != moved[i - 1] + 1;
  }
  PlainMove move;
  Order runs(sizes.size());
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (begins[d]) move.sizes.push_back(1);
    move.sizes.back() *= sizes[d];
    runs[d] = static_cast<std::int64_t>(move.sizes.size()) - 1;
  }
  for (const std::int64_t d : moved) {
    const auto of = static_cast<std::size_t>(d);
    if (begins[of]) move.order.push_back(runs[of]);
  }
  return move;
}

struct Matrices {
  std::int64_t batch, rows, columns;
};

// What the move transposes, where that is all it does.
std::optional<Matrices> transposed_matrices(const PlainMove& move) {
  const Shape& s = move.sizes;
  if (move.order == Order{1, 0}) return Matrices{1, s[0], s[1]};
  if (move.order == Order{0, 2, 1}) return Matrices{s[0], s[1], s[2]};
  return std::nullopt;
}

kernels::PermutedLayout layout_of(const PlainMove& move) {
  kernels::PermutedLayout layout;
  std::fill(std::begin(layout.size), std::end(layout.size), 1);
  std::fill(std::begin(layout.stride), std::end(layout.stride), 0);
  const std::size_t rank = move.order.size();
  const std::size_t first = static_cast<std::size_t>(kernels::kMostPermuted) - rank;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto d = static_cast<std::size_t>(move.order[i]);
    layout.size[first + i] = move.sizes[d];
    layout.stride[first + i] = shape_size(Shape(move.sizes.begin() + d + 1, move.sizes.end()));
  }
  return layout;
}

Tensor permuted(const Tensor& x, const Order& order) {
  Shape shape;
  for (const std::int64_t d : order) shape.push_back(x.dim(d));
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (y.size() == 0) return y;
  const PlainMove move = plain_move(x.shape(), order);
  visit_floating(x.dtype(), "permute", [&](auto zero) {
    using T = decltype(zero);
    if (const auto matrices = transposed_matrices(move)) {
      run(y.device(), kernels::Transpose<T>{.batch = matrices->batch,
                                            .rows = matrices->rows,
                                            .columns = matrices->columns,
                                            .x = x.data<T>(),
                                            .y = y.data<T>()});
    } else {
      run(y.device(),
          kernels::Permute<T>{
              .n = y.size(), .layout = layout_of(move), .x = x.data<T>(), .y = y.data<T>()});
    }
  });
  return y;
}

class PermuteFunction : public Function, public Describes<Order> {
 public:
  explicit PermuteFunction(Order order) : order_(std::move(order)) {}
  std::string name() const override { return "permute"; }
  Order described() const override { return order_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    Order inverse(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) {
      inverse[static_cast<std::size_t>(order_[i])] = static_cast<std::int64_t>(i);
    }
    return {permuted(grad_output, inverse)};
  }

 private:
  Order order_;
};

class ReshapeFunction : public Function, public Describes<Shape> {
 public:
  ReshapeFunction(Shape x_shape, Shape y_shape)
      : x_shape_(std::move(x_shape)), y_shape_(std::move(y_shape)) {}
  std::string name() const override { return "reshape"; }
  Shape described() const override { return y_shape_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {grad_output.reshape(x_shape_)};
  }

 private:
  Shape x_shape_, y_shape_;
};

}  // namespace

void ops::require_permutation(const char* op, const Shape& x, const Order& order) {
  Order sorted = order, all(x.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted == all && order.size() <= kernels::kMostPermuted) return;
  std::string text;
  for (const std::int64_t d : order) {
    if (!text.empty()) text += ", ";
    text += std::to_string(d);
  }
  fail(op,
       "a permutation of the dimensions of " + shape_string(x) + ", of at most " +
           std::to_string(kernels::kMostPermuted),
       text);
}

Variable permute(const Variable& x, const std::vector<std::int64_t>& order) {
  ops::require_defined("permute", "a tensor", x);
  ops::require_permutation("permute", x.shape(), order);
  Tensor y = permuted(x.value(), order);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<PermuteFunction>(order), {x});
}

Variable transpose(const Variable& x, std::int64_t a, std::int64_t b) {
  ops::require_defined("transpose", "a tensor", x);
  const auto rank = static_cast<std::int64_t>(x.shape().size());
  const auto index = [&](std::int64_t d) {
    if (d < -rank || d >= rank) {
      ops::fail("transpose", "dimensions of " + shape_string(x.shape()), std::to_string(d));
    }
    return static_cast<std::size_t>(d < 0 ? d + rank : d);
  };
  Order order(x.shape().size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[index(a)], order[index(b)]);
  return permute(x, order);
}

Variable reshape(const Variable& x, Shape shape) {
  ops::require_defined("reshape", "a tensor", x);
  Tensor y = x.value().reshape(std::move(shape));
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ReshapeFunction>(x.shape(), y.shape()), {x});
}

}  // namespace steelyard
