// The modules that a GraphSpec may name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/import/graph_spec.h"

namespace steelyard::imports {

// Reads options. Throws std::invalid_argument naming one that is missing or of another kind.
class OptionsReader {
 public:
  explicit OptionsReader(const Options& options) : options_(options) {}
  bool has(const std::string& name) const { return options_.contains(name); }
  std::int64_t integer(const std::string& name) const { return get<std::int64_t>(name); }
  bool flag(const std::string& name) const { return get<bool>(name); }
  double real(const std::string& name) const { return get<double>(name); }
  const std::string& text(const std::string& name) const { return get<std::string>(name); }
  const std::vector<std::int64_t>& integers(const std::string& name) const {
    return get<std::vector<std::int64_t>>(name);
  }
  const std::vector<double>& reals(const std::string& name) const {
    return get<std::vector<double>>(name);
  }
  // [height, width].
  std::array<std::int64_t, 2> pair(const std::string& name) const;

 private:
  template <typename T>
  const T& get(const std::string& name) const;
  const Options& options_;
};

struct ModuleType {
  std::string name;
  std::function<std::shared_ptr<Module>(const OptionsReader&, Rng&)> make;
};

const std::vector<ModuleType>& module_types();

}  // namespace steelyard::imports
