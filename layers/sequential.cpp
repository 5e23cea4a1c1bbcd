#include "steelyard/layers/sequential.h"

namespace steelyard {

Sequential::Sequential(const NamedChildren& modules) {
  for (const auto& [name, module] : modules) register_child(name, module);
}

Sequential::Sequential(const Children& modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) register_child(std::to_string(i), modules[i]);
}

Variable Sequential::forward(const Variable& x, ForwardContext& context) {
  Variable y = x;
  for (const auto& child : children()) y = (*child)(y, context);
  return y;
}

}  // namespace steelyard
