#include "steelyard/framework/data/class_names.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

std::optional<std::int64_t> number_in(const std::string& name) {
  std::int64_t value = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, value);
  if (name.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string> sorted_classes(std::vector<std::string> names, const std::string& source) {
  for (const std::string& name : names) {
    if (!is_utf8(name)) {
      throw InputError(source + ": the name '" + printable(name) + "' is not UTF-8");
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (std::ssize(names) > kMaxClasses) {
    throw InputError(source + ": expected at most " + std::to_string(kMaxClasses) +
                     " classes, got " + std::to_string(names.size()));
  }
  const bool numbers = std::all_of(names.begin(), names.end(),
                                   [](const std::string& n) { return number_in(n).has_value(); });
  if (numbers) {
    std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return *number_in(a) < *number_in(b);
    });
  }
  return names;
}

Tensor class_labels(const std::vector<std::string>& samples, const std::vector<std::string>& names,
                    const TextSource& source, const std::string& names_source) {
  std::unordered_map<std::string, std::int64_t> labels;
  for (const std::string& name : names) labels.emplace(name, std::ssize(labels));
  Tensor targets = Tensor::empty({std::ssize(samples)}, DType::kI64);
  std::int64_t* target = targets.data<std::int64_t>();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto label = labels.find(samples[i]);
    if (label == labels.end()) {
      throw InputError(source.place_of(i) + ": " + names_source + " has no class '" +
                       printable(samples[i]) + "'");
    }
    *target++ = label->second;
  }
  return targets;
}

std::vector<std::string> read_names(const std::filesystem::path& path, bool characters) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 26;
  std::string text = read_file(path, kMaxBytes);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // the mark of UTF-8
  std::vector<std::string> names;
  if (characters) names.emplace_back();
  std::unordered_map<std::string, std::int64_t> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (name.ends_with('\r')) name.pop_back();
    begin = end + 1;
    const std::int64_t line = std::ssize(lines) + 1;
    const auto fail = [&](const std::string& problem) {
      throw InputError(printable(path.string()) + ":" + std::to_string(line) + ": " + problem);
    };
    if (!is_utf8(name)) fail("the name '" + printable(name) + "' is not UTF-8");
    if (name.empty() || printable(name, name.size()) != name)
      fail("expected a name, got '" + printable(name) + "'");
    if (characters && utf8_length(name) != name.size()) {
      fail("expected one character, got '" + printable(name) + "'");
    }
    const auto [earlier, is_new] = lines.emplace(name, line);
    if (!is_new) {
      fail("line " + std::to_string(earlier->second) + " has the name '" + printable(name) +
           "' already");
    }
    if (std::ssize(names) == kMaxClasses) {
      fail("expected at most " + std::to_string(kMaxClasses) + " names");
    }
    names.push_back(std::move(name));
  }
  if (lines.empty()) throw InputError(printable(path.string()) + ": expected a name in each line");
  return names;
}

std::int64_t count_classes(const Tensor& targets, const std::string& source) {
  if (targets.dtype() != DType::kI64 || targets.size() == 0) return 0;
  const auto labels = targets.span<std::int64_t>();
  const auto largest = std::max_element(labels.begin(), labels.end());
  if (*largest >= kMaxClasses) {
    throw InputError(
        source +
        ": integer targets are labels of classes (floats are numbers): expected labels below " +
        std::to_string(kMaxClasses) + ", got " + std::to_string(*largest) + " in sample " +
        std::to_string(largest - labels.begin()));
  }
  return std::max(*largest, std::int64_t{0}) + 1;
}

}  // namespace steelyard
