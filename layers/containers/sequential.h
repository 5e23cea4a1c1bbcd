// Layers one after another.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// Applies its children in order; without children it is the identity.
class Sequential : public GraphModule {
 public:
  using NamedChildren = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;
  using Children = std::vector<std::shared_ptr<Module>>;

  explicit Sequential(const NamedChildren& modules);
  // Children named "0", "1", ..., as PyTorch does.
  explicit Sequential(const Children& modules);

  std::string type_name() const override { return "Sequential"; }
};

}  // namespace steelyard
