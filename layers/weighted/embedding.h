// Table lookup layer.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct EmbeddingOptions {
  std::int64_t count = 0;  // rows of the table
  std::int64_t width = 0;
  static constexpr auto fields() {
    return std::tuple(field("count", &EmbeddingOptions::count),
                      field("width", &EmbeddingOptions::width));
  }
};

// y[..., D] = weight[x[...]] for i64 x, or floats, which are rounded to indices. Parameter weight
// [N, D], normal with variance 1 as in PyTorch.
class Embedding : public Module {
 public:
  // Throws std::invalid_argument on sizes below 1.
  Embedding(const EmbeddingOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Embedding"; }
  std::string description() const override;

  const EmbeddingOptions& options() const { return options_; }
  const Variable& weight() const { return weight_; }

 private:
  EmbeddingOptions options_;
  Variable weight_;
};

}  // namespace steelyard
