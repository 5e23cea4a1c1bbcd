#include "steelyard/framework/ops/embedding.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/embedding/embedding.h"

namespace steelyard {
namespace {

// Of the table, or of floats that were rounded to the indices and the table.
class EmbeddingFunction : public Function {
 public:
  explicit EmbeddingFunction(Tensor indices) { save(std::move(indices)); }

  std::string name() const override { return "embedding"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(inputs().size());
    const std::size_t of_table = grads.size() - 1;
    if (of_table > 0 && needs_grad(0)) {
      grads[0] = Tensor::zeros(inputs()[0]->shape, grad_output.dtype(), grad_output.device());
    }
    if (needs_grad(of_table)) grads[of_table] = gradient_of_table(grad_output);
    return grads;
  }

 private:
  Tensor gradient_of_table(const Tensor& grad_output) const {
    const Tensor& indices = saved()[0];
    const Shape& table = inputs().back()->shape;
    Tensor grad = Tensor::empty(table, grad_output.dtype(), grad_output.device());
    visit_floating(grad.dtype(), "embedding", [&](auto zero) {
      using T = decltype(zero);
      run(grad.device(), kernels::EmbeddingBackward<T>{.count = indices.size(),
                                                       .width = table[1],
                                                       .table_rows = table[0],
                                                       .indices = indices.data<std::int64_t>(),
                                                       .grad_y = grad_output.data<T>(),
                                                       .grad_table = grad.data<T>()});
    });
    return grad;
  }
};

void require_indices(const Tensor& indices, std::int64_t rows) {
  if (!indices.defined() || indices.dtype() != DType::kI64) {
    ops::fail("embedding", "i64 indices",
              indices.defined() ? std::string(dtype_name(indices.dtype())) : "none");
  }
  if (indices.device().kind != Device::Kind::kCpu) return;  // the kernel marks them
  const auto all = indices.span<std::int64_t>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0 || all[i] >= rows) {
      const std::int64_t samples = indices.rank() == 0 ? 1 : indices.dim(0);
      const auto of_sample = all.size() / static_cast<std::size_t>(samples);
      throw std::out_of_range("[embedding] expected indices in [0, " + std::to_string(rows) +
                              "), got " + std::to_string(all[i]) + " in sample " +
                              std::to_string(i / of_sample) + " of the batch, at index " +
                              std::to_string(i % of_sample));
    }
  }
}

Tensor rows_of(const Tensor& indices, const Variable& table) {
  ops::require_defined("embedding", "a table", table);
  if (table.shape().size() != 2) {
    ops::fail("embedding", "a table [N, D]", shape_string(table.shape()));
  }
  require_indices(indices, table.dim(0));
  Shape shape = indices.shape();
  shape.push_back(table.dim(1));
  Tensor y = Tensor::empty(shape, table.dtype(), table.value().device());
  visit_floating(table.dtype(), "embedding", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Embedding<T>{.rows = indices.size(),
                                          .columns = table.dim(1),
                                          .table_rows = table.dim(0),
                                          .indices = indices.data<std::int64_t>(),
                                          .table = table.value().data<T>(),
                                          .y = y.data<T>()});
  });
  return y;
}

Tensor rounded(const Tensor& x) {
  Tensor indices = Tensor::empty(x.shape(), DType::kI64, x.device());
  visit_floating(x.dtype(), "embedding", [&](auto zero) {
    using T = decltype(zero);
    run(x.device(), kernels::RoundToIndices<T>{
                        .n = x.size(), .x = x.data<T>(), .indices = indices.data<std::int64_t>()});
  });
  return indices;
}

}  // namespace

Variable embedding(const Tensor& indices, const Variable& table) {
  Tensor y = rows_of(indices, table);
  if (!should_record({table})) return Variable(y);
  return record(y, std::make_shared<EmbeddingFunction>(indices), {table});
}

Variable embedding(const Variable& indices, const Variable& table) {
  ops::require_defined("embedding", "indices", indices);
  const Tensor whole = rounded(indices.value());
  Tensor y = rows_of(whole, table);
  if (!should_record({indices, table})) return Variable(y);
  return record(y, std::make_shared<EmbeddingFunction>(whole), {indices, table});
}

}  // namespace steelyard
