#include "steelyard/framework/ops/products/matmul.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard {
namespace {

// `batch` products of one shape, each of matrices that follow each other.
struct BatchedShape {
  std::int64_t batch = 1;
  kernels::MatmulShape each;
};

Tensor product(const BatchedShape& shape, const Tensor& a, const Tensor& b, const Shape& c_shape) {
  const kernels::MatmulShape& s = shape.each;
  Tensor c = Tensor::empty(c_shape, a.dtype(), a.device());
  visit_floating(a.dtype(), "matmul", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < shape.batch; ++i) {
      run(a.device(), kernels::Matmul<T>{.shape = s,
                                         .a = a.data<T>() + i * s.m * s.k,
                                         .b = b.data<T>() + i * s.k * s.n,
                                         .c = c.data<T>() + i * s.m * s.n});
    }
  });
  return c;
}

class MatmulFunction : public Function {
 public:
  MatmulFunction(const BatchedShape& shape, const Variable& a, const Variable& b)
      : shape_(shape), a_shape_(a.shape()), b_shape_(b.shape()) {
    save(b.requires_grad() ? a.value() : Tensor());
    save(a.requires_grad() ? b.value() : Tensor());
  }
  std::string name() const override { return "matmul"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const auto& [batch, s] = shape_;
    std::vector<Tensor> grads(2);
    if (needs_grad(0)) {
      const kernels::MatmulShape of_a{.m = s.m, .n = s.k, .k = s.n, .transpose_b = true};
      grads[0] = product({batch, of_a}, grad_output, saved()[1], a_shape_);
    }
    if (needs_grad(1)) {
      const kernels::MatmulShape of_b{.m = s.k, .n = s.n, .k = s.m, .transpose_a = true};
      grads[1] = product({batch, of_b}, saved()[0], grad_output, b_shape_);
    }
    return grads;
  }

 private:
  BatchedShape shape_;
  Shape a_shape_;
  Shape b_shape_;
};

BatchedShape checked_shape(const Variable& a, const Variable& b) {
  ops::require_defined("matmul", "a first operand", a);
  ops::require_defined("matmul", "a second operand", b);
  ops::require_same_dtype("matmul", "a second operand", a, b);
  const Shape &x = a.shape(), &w = b.shape();
  const bool shared = w.size() == 2;
  const bool fits =
      x.size() >= 2 && w.size() >= 2 && x.back() == w[w.size() - 2] &&
      (shared || (x.size() == w.size() && std::equal(x.begin(), x.end() - 2, w.begin())));
  if (!fits) {
    ops::fail("matmul", "[..., m, k] and [..., k, n] or [k, n]",
              shape_string(x) + " and " + shape_string(w));
  }
  const std::int64_t n = w.back(), k = x.back(), m = x[x.size() - 2];
  std::int64_t batch = 1;
  for (std::size_t i = 0; i + 2 < x.size(); ++i) batch *= x[i];
  if (shared) return {1, {.m = batch * m, .n = n, .k = k}};
  return {batch, {.m = m, .n = n, .k = k}};
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  const BatchedShape shape = checked_shape(a, b);
  Shape y_shape = a.shape();
  y_shape.back() = shape.each.n;
  if (shapes_only()) return Variable(Tensor::zeros(y_shape, a.dtype(), a.value().device()));
  Tensor y = product(shape, a.value(), b.value(), y_shape);
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<MatmulFunction>(shape, a, b), {a, b});
}

}  // namespace steelyard
