#include "steelyard/layers/weighted/embedding.h"

#include <stdexcept>

#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/layers/init.h"

namespace steelyard {
namespace {

Tensor normal_table(const EmbeddingOptions& o, Rng& rng) {
  if (o.count < 1 || o.width < 1) {
    throw std::invalid_argument("[Embedding] expected count and width of at least 1, got " +
                                std::to_string(o.count) + " and " + std::to_string(o.width));
  }
  Tensor table = Tensor::empty({o.count, o.width});
  fill_normal(table, 1, rng);
  return table;
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options, Rng& rng)
    : options_(options), weight_(register_parameter("weight", normal_table(options, rng))) {}

Variable Embedding::forward(const Variable& x, ForwardContext&) {
  return is_floating(x.dtype()) ? embedding(x, weight_) : embedding(x.value(), weight_);
}

std::string Embedding::description() const {
  return "Embedding(" + std::to_string(options_.count) + ", " + std::to_string(options_.width) +
         ")";
}

}  // namespace steelyard
