#include "steelyard/layers/containers/residual.h"

#include <stdexcept>

#include "steelyard/layers/identity.h"

namespace steelyard {
namespace {

constexpr const char* kShortcut = "downsample";
constexpr const char* kActivation = "relu";

std::shared_ptr<Module> or_identity(std::shared_ptr<Module> module) {
  return module ? std::move(module) : std::make_shared<Identity>();
}

std::shared_ptr<Module> checked_main(std::shared_ptr<Module> main) {
  if (!main) throw std::invalid_argument("[Residual] expected a main branch, got null");
  for (const auto& child : main->children()) {
    if (child->name() == kShortcut || child->name() == kActivation) {
      throw std::invalid_argument("[Residual] expected main without a child '" + child->name() +
                                  "': its children share their names with the other slots");
    }
  }
  return main;
}

}  // namespace

Residual::Residual(std::shared_ptr<Module> main, std::shared_ptr<Module> shortcut,
                   std::shared_ptr<Module> activation)
    : main_(register_child("", checked_main(std::move(main)))),
      shortcut_(register_child(kShortcut, or_identity(std::move(shortcut)))),
      activation_(register_child(kActivation, or_identity(std::move(activation)))) {
  Slot& sum = register_child("", std::make_shared<Add>());
  const std::size_t a = add_node(main_, {kGraphInput});
  const std::size_t b = add_node(shortcut_, {kGraphInput});
  add_node(activation_, {add_node(sum, {a, b})});
}

}  // namespace steelyard
