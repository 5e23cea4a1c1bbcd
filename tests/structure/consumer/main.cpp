// A program outside the project: builds the model of a shipped recipe.
#include <iostream>

#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"

int main() {
  using namespace steelyard;
  const ModelRegistry registry = builtin_models();
  const Recipe recipe = load_recipe("fashion-mnist-mlp-float", {"model.hidden=[4]"}, registry);
  Rng rng(1);
  const auto model = build_model(recipe.model, {28, 28, 1}, 10, rng, registry);
  std::cout << model->named_parameters().size() << " parameters\n";
}
