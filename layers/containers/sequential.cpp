#include "steelyard/layers/containers/sequential.h"

namespace steelyard {

Sequential::Sequential(const NamedChildren& modules) {
  std::size_t value = kGraphInput;
  for (const auto& [name, module] : modules) {
    value = add_node(register_child(name, module), {value});
  }
}

Sequential::Sequential(const Children& modules) {
  std::size_t value = kGraphInput;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    value = add_node(register_child(std::to_string(i), modules[i]), {value});
  }
}

}  // namespace steelyard
