// A program outside the project, with headers of its own that are named like the library's: makes
// the model of a shipped recipe and quantizes one of its own.
#include <steelyard/steelyard.h>
#include <iostream>

#include "framework/tensor.h"
#include "kernels/affine.h"

int main() {
  using namespace steelyard;
  Registries registries;
  const Recipe recipe = load_recipe("fashion-mnist-mlp-float", {"model.hidden=[4]"}, registries);
  Rng rng(1);
  const auto model = build_model(recipe.model, {28, 28, 1}, 10, rng, registries.models);
  const auto own = sequential({{"fc", linear(consumer::kFeatures, 3, rng)}});
  const auto [quantized, plan] = prepare(own, w8a8({"Linear"}));
  ForwardContext context{.training = true};
  const Variable y = quantized(Variable(Tensor::full({1, consumer::kFeatures}, 1)), context);
  std::cout << model->named_parameters().size() << " parameters, " << plan.rows.size() << " rows, "
            << shape_string(y.shape()) << consumer::kEnd;
}
