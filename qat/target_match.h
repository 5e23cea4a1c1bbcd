// Which layers a list of targets names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "qat/qconfig.h"

namespace steelyard::qat {

// One entry of `targets` or `ignore`: a type name, an exact module path, or "re:" and a regular
// expression (ECMAScript) that must match the whole path. Throws InputError on a bad expression.
bool matches(const std::string& entry, const std::string& path, const std::string& type);

// The groups and the ignore list, remembering which entries were of use.
class TargetMatcher {
 public:
  explicit TargetMatcher(const QuantizeConfig& config);

  // The config of a layer that can be quantized, or null when it stays in float (`reason` says
  // why).
  const QConfig* config_for(const std::string& path, const std::string& type, std::string& reason);
  // Any other module: entries that name it are errors, collected for finish().
  void note_unsupported(const std::string& path, const std::string& type);
  // Throws InputError listing the entries that matched nothing or only what cannot be quantized.
  void finish() const;

 private:
  struct Entry {
    std::string where;  // "quantize.groups.0.targets"
    std::string text;
    const QConfig* config = nullptr;  // null: an ignore entry
    bool used = false;
    std::string unsupported{};  // "bn1 (BatchNorm2d)"
  };
  std::vector<Entry> entries_;
};

}  // namespace steelyard::qat
