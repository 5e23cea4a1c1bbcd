// Branches of one input, joined along the channels.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// y = concat(branch1(x), branch2(x), ...); the slot of the join has no name. Source: Szegedy et
// al., "Going Deeper with Convolutions", 2015; torchvision names the branches of its Inception
// blocks so.
class Concat : public GraphModule {
 public:
  using NamedBranches = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

  // Throws std::invalid_argument without branches.
  explicit Concat(const NamedBranches& branches);
  // Branches named "branch1", "branch2", ...
  explicit Concat(const std::vector<std::shared_ptr<Module>>& branches);

  std::string type_name() const override { return "Concat"; }
};

}  // namespace steelyard
