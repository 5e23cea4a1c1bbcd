#include "steelyard/framework/ops/products/attention.h"

#include <algorithm>

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/attention/attention.h"

namespace steelyard {
namespace {

class CausalAttentionFunction : public Function {
 public:
  CausalAttentionFunction(const kernels::AttentionShape& shape, const std::vector<Tensor>& kept)
      : shape_(shape) {
    for (const Tensor& tensor : kept) save(tensor);
  }

  std::string name() const override { return "causal_attention"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor &q = saved()[0], &k = saved()[1], &y = saved()[3], &log_sums = saved()[4];
    std::vector<Tensor> grads;
    for (const Tensor* of : {&q, &k, &k}) {
      grads.push_back(Tensor::empty(of->shape(), q.dtype(), q.device()));
    }
    const Tensor projections = Tensor::empty(log_sums.shape(), q.dtype(), q.device());
    visit_floating(q.dtype(), "causal_attention", [&](auto zero) {
      using T = decltype(zero);
      run(q.device(), kernels::CausalAttentionBackward<T>{.shape = shape_,
                                                          .q = q.data<T>(),
                                                          .k = k.data<T>(),
                                                          .v = saved()[2].data<T>(),
                                                          .starts = data_or_null<T>(saved()[5]),
                                                          .y = y.data<T>(),
                                                          .grad_y = grad_output.data<T>(),
                                                          .log_sums = log_sums.data<T>(),
                                                          .projections = projections.data<T>(),
                                                          .grad_q = grads[0].data<T>(),
                                                          .grad_k = grads[1].data<T>(),
                                                          .grad_v = grads[2].data<T>()});
    });
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!needs_grad(i)) grads[i] = Tensor();
    }
    return grads;
  }

 private:
  kernels::AttentionShape shape_;
};

kernels::AttentionShape checked_shape(const Variable& q, const Variable& k, const Variable& v,
                                      const AttentionHeads& heads, const Tensor& starts) {
  constexpr const char* kOp = "causal_attention";
  ops::require_defined(kOp, "queries", q);
  ops::require_defined(kOp, "keys", k);
  ops::require_defined(kOp, "values", v);
  if (heads.keys < 1 || heads.queries < 1 || heads.queries % heads.keys != 0) {
    ops::fail(kOp, "heads of queries that are a multiple of those of keys",
              std::to_string(heads.queries) + " and " + std::to_string(heads.keys));
  }
  if (q.shape().size() != 3 || q.dim(2) % heads.queries != 0 || q.dim(2) == 0) {
    ops::fail(kOp, "queries [samples, length, " + std::to_string(heads.queries) + " * width]",
              shape_string(q.shape()));
  }
  const std::int64_t width = q.dim(2) / heads.queries;
  if (width > kernels::kMostHeadWidth) {
    ops::fail(kOp, "heads of at most " + std::to_string(kernels::kMostHeadWidth) + " values",
              std::to_string(width));
  }
  Shape expected{q.dim(0), q.dim(1), heads.keys * width};
  if (k.shape().size() == 3) expected[1] = std::max(expected[1], k.dim(1));
  for (const auto& [what, given] : {std::pair{"keys", k}, {"values", v}}) {
    if (given.shape() != expected) {
      ops::fail(kOp, what + (" " + shape_string(expected)), shape_string(given.shape()));
    }
    ops::require_same_dtype(kOp, what, q, given);
  }
  const Shape positions{expected[0], expected[1]};
  if (starts.defined() && (starts.dtype() != q.dtype() || starts.shape() != positions)) {
    ops::fail(kOp, "starts " + std::string(dtype_name(q.dtype())) + " " + shape_string(positions),
              std::string(dtype_name(starts.dtype())) + " " + shape_string(starts.shape()));
  }
  return {q.dim(0), q.dim(1), expected[1], heads.queries, heads.keys, width};
}

}  // namespace

Variable causal_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionHeads& heads, const Tensor& starts) {
  const kernels::AttentionShape shape = checked_shape(q, k, v, heads, starts);
  const Device device = q.value().device();
  if (shapes_only()) return Variable(Tensor::zeros(q.shape(), q.dtype(), device));
  Tensor y = Tensor::empty(q.shape(), q.dtype(), device);
  const Tensor log_sums =
      Tensor::empty({shape.samples, shape.heads, shape.queries}, q.dtype(), device);
  visit_floating(q.dtype(), "causal_attention", [&](auto zero) {
    using T = decltype(zero);
    run(device, kernels::CausalAttention<T>{.shape = shape,
                                            .q = q.value().data<T>(),
                                            .k = k.value().data<T>(),
                                            .v = v.value().data<T>(),
                                            .starts = data_or_null<T>(starts),
                                            .y = y.data<T>(),
                                            .log_sums = log_sums.data<T>()});
  });
  if (!should_record({q, k, v})) return Variable(y);
  const std::vector<Tensor> kept{q.value(), k.value(), v.value(), y, log_sums, starts};
  return record(y, std::make_shared<CausalAttentionFunction>(shape, kept), {q, k, v});
}

}  // namespace steelyard
