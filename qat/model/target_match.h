// Selection of modules by the entries of `targets` and `ignore`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steelyard/qat/quantizers/qconfig.h"

namespace re2 {
class RE2;
}

namespace steelyard::qat {

// A type name, an exact module path, or "re:" and a regular expression that must match the whole
// path. Its syntax is RE2's (https://github.com/google/re2/wiki/Syntax), which has no lookahead and
// no backreferences: matching takes time linear in the path's length.
struct TargetPattern {
  // `where` starts messages about it: "recipe.yaml:12:9: quantize.groups.0.targets". Throws
  // InputError on a bad regular expression.
  TargetPattern(std::string text, std::string where);

  bool matches(const std::string& path, const std::string& type) const;

  std::string text;
  std::string where;
  std::shared_ptr<const re2::RE2> pattern{};
};

// How the reason begins why an ignored layer stays in float.
inline constexpr std::string_view kIgnoredBy = "ignored by ";

// The groups and the ignore list, remembering which entries were of use. A container that is
// ignored or that a target names stands for everything beneath it.
class TargetMatcher {
 public:
  // Throws InputError on a bad regular expression.
  explicit TargetMatcher(const QuantizeConfig& config);

  // A module and what lies in it: entries that ignore the one ignore the other.
  using Scope = std::size_t;
  static constexpr Scope kNoScope = SIZE_MAX;

  // Any module but a weighted layer, inside of `parent` (kNoScope for the root): entries that name
  // it are errors, collected for finish(), unless they ignore something that is quantized in it.
  Scope enter(const std::string& path, const std::string& type, Scope parent);
  // Whether a quantizer in the scope (a sum's or an average's own) is ignored.
  bool ignored(Scope scope, std::string& reason);

  // The config of a weighted layer directly inside of `parent`, or null when it stays in float
  // (`reason` says why).
  const QConfig* config_for(const std::string& path, const std::string& type, Scope parent,
                            std::string& reason);

  // The activations of the group that names a sum, a join or an average by its exact path; null
  // where none does.
  const QuantizerConfig* activations_named(const std::string& path);

  // Where the target was written by which config_for() gave the config, for messages.
  const std::string& place_of_target() const { return entries_[deciding_].where; }

  // `weighted`: the types that targets can choose, for messages: "Linear and Conv2d". Throws
  // InputError listing the entries that matched nothing or only what cannot be quantized,
  // and the groups whose layers are all ignored or were taken by groups before them.
  void finish(const std::string& weighted) const;

 private:
  struct Entry : TargetPattern {
    Entry(TargetPattern target, const QConfig* of) : TargetPattern(std::move(target)), config(of) {}

    const QConfig* config;  // null: an ignore entry
    bool used = false;
    bool quantizes = false;     // a layer that it names belongs to its group
    bool ignored = false;       // a layer that it names is ignored
    std::string unsupported{};  // "bn1 (BatchNorm2d)"
  };

  void add(const std::vector<std::string>& texts, const std::vector<std::string>& places,
           const std::string& name, const QConfig* config);
  void note_name(const std::string& path, const std::string& type);
  std::string problem(const Entry& entry, const std::string& weighted) const;
  // ": the model has Conv2d (7), Linear (1)".
  std::string layers_text() const;

  std::vector<Entry> entries_;  // the ignore list first
  std::size_t deciding_ = 0;    // the entry that gave the last config
  // For every scope: the indices of the entries that name it or a container around it.
  std::vector<std::set<std::size_t>> named_;
  std::set<std::string> names_;                 // types and paths seen
  std::map<std::string, std::int64_t> layers_;  // weighted ones of each type
};

}  // namespace steelyard::qat
