#include "qat/target_match.h"

#include <regex>

#include "framework/error.h"

namespace steelyard::qat {

bool matches(const std::string& entry, const std::string& path, const std::string& type) {
  if (!entry.starts_with("re:")) return entry == type || entry == path;
  try {
    return std::regex_match(path, std::regex(entry.substr(3)));
  } catch (const std::regex_error& error) {
    throw InputError("target '" + entry + "': bad regular expression: " + error.what());
  }
}

TargetMatcher::TargetMatcher(const QuantizeConfig& config) {
  for (const std::string& text : config.ignore) entries_.push_back({"quantize.ignore", text});
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    for (const std::string& text : config.groups[g].targets) {
      entries_.push_back(
          {"quantize.groups." + std::to_string(g) + ".targets", text, &config.groups[g].config});
    }
  }
}

const QConfig* TargetMatcher::config_for(const std::string& path, const std::string& type,
                                         std::string& reason) {
  const QConfig* config = nullptr;
  bool ignored = false;
  for (Entry& entry : entries_) {
    if (!matches(entry.text, path, type)) continue;
    entry.used = true;
    if (entry.config == nullptr) {
      ignored = true;
      reason = "ignored by '" + entry.text + "'";
    } else if (config == nullptr) {
      config = entry.config;
    }
  }
  if (ignored) return nullptr;
  if (config == nullptr) reason = "no target matches it";
  return config;
}

void TargetMatcher::note_unsupported(const std::string& path, const std::string& type) {
  for (Entry& entry : entries_) {
    if (!matches(entry.text, path, type)) continue;
    if (entry.config == nullptr) entry.used = true;  // left in float, as asked
    if (entry.unsupported.empty()) entry.unsupported = path + " (" + type + ")";
  }
}

void TargetMatcher::finish() const {
  std::string problems;
  for (const Entry& entry : entries_) {
    if (entry.used) continue;
    if (!problems.empty()) problems += "; ";
    problems += entry.where + ": '" + entry.text + "' ";
    problems += entry.unsupported.empty()
                    ? "matches no module"
                    : "names " + entry.unsupported +
                          ", which has no quantized form (Linear and Conv2d have)";
  }
  if (!problems.empty()) throw InputError(problems);
}

}  // namespace steelyard::qat
