#include "steelyard/framework/data/targets.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

std::vector<std::string> split(std::string_view text, const std::string& separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view part = trimmed(text.substr(begin, end - begin));
    if (!part.empty()) parts.emplace_back(part);
    begin = end + separator.size();
  }
  return parts;
}

std::vector<std::string> characters(const std::string& text, const std::string& source) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size(); at += found.back().size()) {
    const std::size_t size = utf8_length(std::string_view(text).substr(at));
    if (size == 0) throw InputError(source + ": the text '" + printable(text) + "' is not UTF-8");
    found.push_back(text.substr(at, size));
  }
  return found;
}

// The numbers of parts of texts, such as labels or characters.
class Vocabulary {
 public:
  Vocabulary(std::vector<std::string> names, const char* part, const TextSource& source,
             std::string of)
      : names_(std::move(names)), part_(part), source_(source), of_(std::move(of)) {
    for (const std::string& name : names_) numbers_.emplace(name, std::ssize(numbers_));
  }

  const std::vector<std::string>& names() const { return names_; }
  // The number that stands for `name`, a part of a sample's text. Throws InputError where none
  // does.
  std::int64_t number(const std::string& name, std::size_t sample) const {
    const auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    throw InputError(source_.place_of(sample) + ": " + of_ + " has no " + part_ + " '" +
                     printable(name) + "'");
  }

 private:
  std::vector<std::string> names_;
  const char* part_;
  const TextSource& source_;
  std::string of_;  // whose names they are
  std::unordered_map<std::string, std::int64_t> numbers_;
};

using Parts = std::vector<std::vector<std::string>>;

std::vector<std::string> different(const Parts& parts, const std::string& source) {
  std::set<std::string> all;
  for (const auto& of_sample : parts) all.insert(of_sample.begin(), of_sample.end());
  return sorted_classes({all.begin(), all.end()}, source);
}

void set_marks(Dataset& dataset, const Parts& labels, const Vocabulary& names) {
  const std::int64_t classes = std::ssize(names.names());
  dataset.targets = Tensor::zeros({std::ssize(labels), classes});
  float* row = dataset.targets.data<float>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const std::string& label : labels[i]) row[names.number(label, i)] = 1;
    row += classes;
  }
}

void set_texts(Dataset& dataset, const Parts& texts, const Vocabulary& names) {
  std::size_t longest = 1;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  dataset.targets =
      Tensor::full({std::ssize(texts), static_cast<std::int64_t>(longest)}, -1, DType::kI64);
  std::int64_t* row = dataset.targets.data<std::int64_t>();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::transform(texts[i].begin(), texts[i].end(), row,
                   [&](const std::string& character) { return names.number(character, i); });
    row += longest;
  }
}

}  // namespace

bool same_target(const std::string& a, const std::string& b, const TargetOptions& options) {
  if (a == b || options.kind != TargetKind::kMarks) return a == b;
  const auto labels = [&](const std::string& text) {
    const std::vector<std::string> parts = split(text, options.separator);
    return std::set<std::string>(parts.begin(), parts.end());
  };
  return labels(a) == labels(b);
}

void set_targets(Dataset& dataset, const std::vector<std::string>& texts,
                 const TargetOptions& options, const std::vector<std::string>& known,
                 const TextSource& source) {
  const TargetKind kind = options.kind.value_or(TargetKind::kClass);
  if (!options.may_be_empty()) {
    dataset.names.classes = known.empty() ? sorted_classes(texts, source.name) : known;
    dataset.targets = class_labels(texts, dataset.names.classes, source, options.names_source);
    dataset.classes = std::ssize(dataset.names.classes);
    return;
  }
  const bool marks = kind == TargetKind::kMarks;
  Parts parts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    parts.push_back(marks ? split(texts[i], options.separator)
                          : characters(texts[i], source.place_of(i)));
  }
  std::vector<std::string> names = known;
  if (names.empty()) {
    names = different(parts, source.name);
    if (names.empty()) throw InputError(source.name + ": all targets are empty");
    if (!marks) names.insert(names.begin(), "");  // the blank
  }
  const Vocabulary vocabulary(std::move(names), marks ? "label" : "character", source,
                              options.names_source);
  dataset.names.classes = vocabulary.names();
  dataset.classes = std::ssize(vocabulary.names());
  if (marks) {
    set_marks(dataset, parts, vocabulary);
  } else {
    set_texts(dataset, parts, vocabulary);
  }
}

void convert_targets(Dataset& dataset, const TargetOptions& options) {
  if (options.kind != TargetKind::kMarks || dataset.size() == 0) return;
  Tensor& targets = dataset.targets;
  if (target_kind(targets, dataset.classes) == TargetKind::kMarks) return;
  if (targets.rank() == 2) {  // a column for each class
    dataset.classes = targets.dim(1);
    targets = targets.to(DType::kF32);
    return;
  }
  if (targets.dtype() != DType::kI64 || targets.rank() != 1 || dataset.classes == 0) return;
  dataset.classes =
      std::max<std::int64_t>({dataset.classes, options.classes, std::ssize(options.names)});
  Tensor marks = Tensor::zeros({targets.dim(0), dataset.classes});
  const std::int64_t* label = targets.data<std::int64_t>();
  for (std::int64_t i = 0; i < targets.dim(0); ++i) {
    if (label[i] < 0 || label[i] >= dataset.classes) return;  // validate_targets() says so
    marks.data<float>()[i * dataset.classes + label[i]] = 1;
  }
  targets = marks;
}

std::vector<std::int64_t> class_counts(const Dataset& dataset) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(dataset.classes));
  if (dataset.classes == 0) return counts;
  if (target_kind(dataset.targets, dataset.classes) == TargetKind::kMarks) {
    const auto marks = dataset.targets.span<float>();
    for (std::size_t i = 0; i < marks.size(); ++i) {
      if (marks[i] > 0.5F) ++counts[i % counts.size()];
    }
    return counts;
  }
  for (const std::int64_t label : dataset.targets.span<std::int64_t>()) {
    if (label >= 0) ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

void drop_targets(Dataset& dataset) {
  dataset.targets = Tensor::empty({dataset.size(), 0});
  dataset.classes = 0;
  dataset.names.classes.clear();
}

bool has_targets(const Dataset& dataset) {
  const Tensor& y = dataset.targets;
  const bool none = dataset.classes == 0 && y.defined() && y.dtype() == DType::kF32 &&
                    y.rank() == 2 && y.dim(1) == 0;
  return !none;
}

std::string target_text(const Dataset& dataset) {
  if (!has_targets(dataset)) return "no targets";
  const Tensor& targets = dataset.targets;
  const std::string start = "targets " + std::string(dtype_name(targets.dtype())) + " ";
  if (target_kind(targets, dataset.classes) == TargetKind::kText) return start + "[length]";
  return start + shape_string({targets.shape().begin() + 1, targets.shape().end()});
}

namespace {

void require_labels(const Dataset& dataset, const std::string& source) {
  const auto labels = dataset.targets.span<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0 && labels[i] < dataset.classes) continue;
    throw InputError(source + ": expected labels in [0, " + std::to_string(dataset.classes) +
                     "), got " + std::to_string(labels[i]) + " in sample " +
                     std::to_string(static_cast<std::int64_t>(i) /
                                    (dataset.targets.size() / dataset.targets.dim(0))));
  }
}

void require_marks(const Dataset& dataset, const std::string& source) {
  const auto marks = dataset.targets.span<float>();
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] >= 0 && marks[i] <= 1) continue;
    throw InputError(source + ": expected marks from 0 to 1, got " + std::to_string(marks[i]) +
                     " in sample " +
                     std::to_string(static_cast<std::int64_t>(i) / dataset.classes));
  }
}

void require_texts(const Dataset& dataset, const std::string& source) {
  const std::int64_t length = dataset.targets.dim(1);
  for (std::int64_t i = 0; i < dataset.targets.dim(0); ++i) {
    const std::int64_t* text = dataset.targets.data<std::int64_t>() + i * length;
    bool ended = false;
    for (std::int64_t k = 0; k < length; ++k) {
      ended = ended || text[k] == -1;
      if (ended ? text[k] == -1 : text[k] >= 1 && text[k] < dataset.classes) continue;
      throw InputError(
          source +
          ": expected labels i64 [N], or for the loss ctc texts i64 [N, length] of characters from "
          "1 to " +
          std::to_string(dataset.classes - 1) + " (0 is the blank), then -1, got i64 " +
          shape_string(dataset.targets.shape()) + " with " + std::to_string(text[k]) +
          " in sample " + std::to_string(i) + (length == 1 ? " (labels have one dimension)" : ""));
    }
  }
}

}  // namespace

void validate_targets(const Dataset& dataset, const std::string& source) {
  const auto require = [&source](bool condition, const std::string& what) {
    if (!condition) throw InputError(source + ": " + what);
  };
  if (!has_targets(dataset)) return;
  const Tensor& y = dataset.targets;
  const std::string found = std::string(dtype_name(y.dtype())) + " " + shape_string(y.shape());
  switch (target_kind(y, dataset.classes)) {
    case TargetKind::kValues:
      require(y.dtype() == DType::kF32 && y.size() > 0,
              "expected targets f32 for regression, got " + found);
      return require_finite(y, source + ": targets");
    case TargetKind::kMarks:
      require(y.dtype() == DType::kF32 && y.rank() == 2 && y.dim(1) == dataset.classes,
              "expected marks f32 [N, " + std::to_string(dataset.classes) + "], got " + found);
      return require_marks(dataset, source);
    case TargetKind::kText:
      return require_texts(dataset, source);
    case TargetKind::kTokens:
      return require_labels(dataset, source);
    case TargetKind::kClass:
      require(y.rank() == 1, "expected labels i64 [N], got " + found);
      return require_labels(dataset, source);
  }
}

std::vector<double> balanced_class_weights(const Dataset& dataset) {
  std::vector<double> weights;
  for (const std::int64_t count : class_counts(dataset)) {
    const auto each = static_cast<double>(count) * static_cast<double>(dataset.classes);
    weights.push_back(count == 0 ? 0 : static_cast<double>(dataset.size()) / each);
  }
  return weights;
}

std::vector<double> balanced_positive_weights(const Dataset& dataset) {
  std::vector<double> weights;
  for (const std::int64_t count : class_counts(dataset)) {
    const auto negative = static_cast<double>(dataset.size() - count);
    // A class that every sample has keeps a weight: nothing else holds it up.
    weights.push_back(count == 0 || negative == 0 ? 1 : negative / static_cast<double>(count));
  }
  return weights;
}

}  // namespace steelyard
