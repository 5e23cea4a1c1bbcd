#include "steelyard/framework/ops/products/embedding.h"

#include <fmt/core.h>

#include <stdexcept>

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/moves/gather.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/embedding/embedding.h"

namespace steelyard {
namespace {

// The lookup: its inputs are the table, or floats that were rounded to the indices and the table.
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
    if (needs_grad(of_table)) {
      grads[of_table] =
          ops::gradient_of_rows("embedding", inputs().back()->shape, saved()[0], 0, grad_output);
    }
    return grads;
  }
};

// `given`: the numbers that were rounded to the indices, or the indices.
void require_indices(const Tensor& indices, const Tensor& given, std::int64_t rows) {
  const std::int64_t at = ops::first_outside("embedding", indices, rows);
  if (at < 0) return;
  const std::int64_t samples = indices.rank() == 0 ? 1 : indices.dim(0);
  const std::int64_t of_sample = indices.size() / samples;
  const std::string got = is_floating(given.dtype())
                              ? fmt::format("{}", given.to(DType::kF32).span<float>()[at])
                              : std::to_string(indices.span<std::int64_t>()[at]);
  const std::string sample =
      samples == 1 ? "" : fmt::format(" in sample {} of the batch,", at / of_sample);
  throw std::out_of_range(
      fmt::format("[embedding] expected indices in [0, {}), got {}{} at index {}", rows, got,
                  sample, at % of_sample));
}

Tensor rows_of(const Tensor& indices, const Tensor& given, const Variable& table) {
  ops::require_defined("embedding", "a table", table);
  if (table.shape().size() != 2) {
    ops::fail("embedding", "a table [N, D]", shape_string(table.shape()));
  }
  if (shapes_only()) {  // of constants that are not loaded yet, perhaps
    Shape shape = indices.shape();
    shape.push_back(table.dim(1));
    return Tensor::zeros(std::move(shape), table.dtype(), table.value().device());
  }
  require_indices(indices, given, table.dim(0));
  return ops::rows_at("embedding", table.value(), indices, 0);
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
  Tensor y = rows_of(indices, indices, table);
  if (!should_record({table})) return Variable(y);
  return record(y, std::make_shared<EmbeddingFunction>(indices), {table});
}

Variable embedding(const Variable& indices, const Variable& table) {
  ops::require_defined("embedding", "indices", indices);
  const Tensor whole = rounded(indices.value());
  Tensor y = rows_of(whole, indices.value(), table);
  if (!should_record({indices, table})) return Variable(y);
  return record(y, std::make_shared<EmbeddingFunction>(whole), {indices, table});
}

}  // namespace steelyard
