#include "steelyard/qat/model/target_match.h"

#include <re2/re2.h>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard::qat {
namespace {

// The head of a language model that is its embedding's table: it stays in float, as an entry of
// `ignore` wants that is written for models with a head of their own, too.
constexpr const char* kTiedHead = "EmbeddingHead";

}  // namespace

TargetPattern::TargetPattern(std::string given_text, std::string given_where)
    : text(std::move(given_text)), where(std::move(given_where)) {
  if (!text.starts_with("re:")) return;
  RE2::Options options;
  options.set_log_errors(false);
  pattern = std::make_shared<const RE2>(text.substr(3), options);
  if (pattern->ok()) return;
  // Syntax of other engines that RE2 does not have: "(?=", "(?!", "(?<" and "\1".
  const bool foreign =
      pattern->error_code() == RE2::ErrorBadPerlOp || pattern->error_code() == RE2::ErrorBadEscape;
  throw InputError(where + ": '" + text + "': bad regular expression: " + pattern->error() +
                   (foreign ? " (RE2's syntax has no lookaround and no backreferences)" : ""));
}

bool TargetPattern::matches(const std::string& path, const std::string& type) const {
  return pattern ? RE2::FullMatch(path, *pattern) : text == type || text == path;
}

TargetMatcher::TargetMatcher(const QuantizeConfig& config) {
  add(config.ignore, config.ignore_places, "quantize.ignore", nullptr);
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    const QuantizeGroup& group = config.groups[g];
    add(group.targets, group.target_places, "quantize.groups." + std::to_string(g) + ".targets",
        &group.config);
  }
}

void TargetMatcher::add(const std::vector<std::string>& texts,
                        const std::vector<std::string>& places, const std::string& name,
                        const QConfig* config) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string where = i < places.size() ? places[i] : name;
    if (!where.ends_with(name)) where += ": " + name;  // an override's place is its key
    entries_.emplace_back(TargetPattern(texts[i], where), config);
  }
}

void TargetMatcher::note_name(const std::string& path, const std::string& type) {
  names_.insert(type);
  if (!path.empty()) names_.insert(path);
}

const QConfig* TargetMatcher::config_for(const std::string& path, const std::string& type,
                                         Scope parent, std::string& reason) {
  note_name(path, type);
  ++layers_[type];
  const QConfig* config = nullptr;
  bool is_ignored = ignored(parent, reason);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    // A regular expression says itself whether it goes further than a container.
    const bool inside = entry.config != nullptr && entry.pattern == nullptr && parent != kNoScope &&
                        named_[parent].contains(i);
    if (!inside && !entry.matches(path, type)) continue;
    entry.used = true;
    if (entry.config == nullptr) {
      if (!is_ignored) reason = std::string(kIgnoredBy) + "'" + entry.text + "'";
      is_ignored = true;
    } else if (is_ignored) {
      entry.ignored = true;
    } else if (config == nullptr || config == entry.config) {
      entry.quantizes = true;
      if (config == nullptr) deciding_ = i;
      config = entry.config;
    }
  }
  if (is_ignored) return nullptr;
  if (config == nullptr) reason = "no target matches it";
  return config;
}

const QuantizerConfig* TargetMatcher::activations_named(const std::string& path) {
  for (Entry& entry : entries_) {
    if (entry.config == nullptr || entry.text != path) continue;
    if (!entry.config->activations || is_dynamic(*entry.config)) continue;
    entry.used = entry.quantizes = true;
    return &*entry.config->activations;
  }
  return nullptr;
}

TargetMatcher::Scope TargetMatcher::enter(const std::string& path, const std::string& type,
                                          Scope parent) {
  note_name(path, type);
  std::set<std::size_t> named;
  if (parent != kNoScope) named = named_[parent];
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!entry.matches(path, type)) continue;
    named.insert(i);
    if (entry.config == nullptr && type == kTiedHead) entry.used = true;
    if (entry.unsupported.empty()) {
      entry.unsupported = (path.empty() ? "the model" : path) + " (" + type + ")";
    }
  }
  named_.push_back(std::move(named));
  return named_.size() - 1;
}

bool TargetMatcher::ignored(Scope scope, std::string& reason) {
  if (scope == kNoScope) return false;
  bool is_ignored = false;
  for (const std::size_t i : named_[scope]) {
    if (entries_[i].config != nullptr) continue;
    if (!is_ignored) reason = std::string(kIgnoredBy) + "'" + entries_[i].text + "'";
    is_ignored = entries_[i].used = true;
  }
  return is_ignored;
}

std::string TargetMatcher::layers_text() const {
  std::string text;
  for (const auto& [type, count] : layers_) {
    text += (text.empty() ? "" : ", ") + type + " (" + std::to_string(count) + ")";
  }
  return text.empty() ? ": the model has no layer that targets could choose"
                      : ": the model has " + text;
}

// The problem of an entry, or "".
std::string TargetMatcher::problem(const Entry& entry, const std::string& weighted) const {
  if (!entry.used && entry.unsupported.empty()) {
    const std::string nearest = nearest_word(entry.text, {names_.begin(), names_.end()});
    return "matches no module" + (nearest.empty() ? "" : " (did you mean '" + nearest + "'?)") +
           (entry.config == nullptr ? "" : layers_text());
  }
  if (!entry.used) {
    return "names " + entry.unsupported + ", which is not quantized by itself" +
           (entry.config == nullptr ? "" : " (" + weighted + " are)");
  }
  if (entry.config == nullptr) return "";
  for (const Entry& other : entries_) {
    if (other.config == entry.config && other.quantizes) return "";
  }
  return std::string("names only layers that ") +
         (entry.ignored ? "quantize.ignore leaves in float" : "a group before it quantizes");
}

void TargetMatcher::finish(const std::string& weighted) const {
  std::string problems;
  for (const Entry& entry : entries_) {
    const std::string text = problem(entry, weighted);
    if (text.empty()) continue;
    if (!problems.empty()) problems += "; ";
    problems += entry.where + ": '" + entry.text + "' " + text;
  }
  if (!problems.empty()) throw InputError(problems);
}

}  // namespace steelyard::qat
