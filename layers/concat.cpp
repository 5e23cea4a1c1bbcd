#include "steelyard/layers/concat.h"

#include <stdexcept>

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
  std::vector<std::size_t> parts;
  for (const auto& [name, branch] : branches) {
    parts.push_back(add_node(register_child(name, branch), {kGraphInput}));
  }
  add_node(register_child("", std::make_shared<Cat>()), std::move(parts));
}

Concat::Concat(const std::vector<std::shared_ptr<Module>>& branches) : Concat(numbered(branches)) {}

}  // namespace steelyard
