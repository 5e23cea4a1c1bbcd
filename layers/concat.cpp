#include "steelyard/layers/concat.h"

#include <stdexcept>

#include "steelyard/framework/ops/concat.h"

namespace steelyard {
namespace {

Concat::NamedBranches numbered(const std::vector<std::shared_ptr<Module>>& branches) {
  Concat::NamedBranches named;
  for (const auto& branch : branches) {
    named.emplace_back("branch" + std::to_string(named.size() + 1), branch);
  }
  return named;
}

}  // namespace

Concat::Concat(const NamedBranches& branches) {
  if (branches.empty()) throw std::invalid_argument("[Concat] expected branches, got none");
  for (const auto& [name, branch] : branches) register_child(name, branch);
}

Concat::Concat(const std::vector<std::shared_ptr<Module>>& branches) : Concat(numbered(branches)) {}

Variable Concat::forward(const Variable& x, ForwardContext& context) {
  std::vector<Variable> parts;
  for (const auto& branch : children()) parts.push_back((*branch)(x, context));
  return concat(parts);
}

}  // namespace steelyard
