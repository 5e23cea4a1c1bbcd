// Targets of every kind, from texts and from arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/dataset.h"

namespace steelyard {

// The options of targets that a recipe gives.
struct TargetOptions {
  // Absent: a class where there are texts or whole numbers, else numbers.
  std::optional<TargetKind> kind = {};
  std::string separator = "|";  // between the labels of a sample, of kMarks
  // The classes, labels or characters in the order of the model's outputs, of kText after "", and
  // the file that lists them. Absent: those of the training set.
  std::vector<std::string> names = {};
  std::string names_source = "the training set";
  // How many classes a model has that was trained on the data: whole numbers may lack the last
  // ones.
  std::int64_t classes = 0;

  // Whether a sample's text may be empty: no label, or a text without characters.
  bool may_be_empty() const { return kind == TargetKind::kMarks || kind == TargetKind::kText; }
};

// Whether two texts stand for the same target: labels may be in any order.
bool same_target(const std::string& a, const std::string& b, const TargetOptions& options);

// The longest text of a target in bytes, and in characters.
inline constexpr std::uint64_t kMaxTargetText = 65536;

// Sets targets, classes and their names from a text for each sample. `known` are the names of a
// training set; without them they are those of these texts: their classes, all labels between
// separators, or "" (the blank) and all characters (UTF-8) in order. Throws InputError that starts
// with the sample's place for a class, a label or a character that `known` lacks.
void set_targets(Dataset& dataset, const std::vector<std::string>& texts,
                 const TargetOptions& options, const std::vector<std::string>& known,
                 const TextSource& source);

// Makes targets of another form those of `options.kind`, where it is there: labels [N] and whole
// numbers [N, classes] become marks, of all classes that the options know. Others are left as they
// are.
void convert_targets(Dataset& dataset, const TargetOptions& options);

// The number of samples with each class or label (mark above 1/2), or of occurrences of each
// character; empty for numbers.
std::vector<std::int64_t> class_counts(const Dataset& dataset);

// Throws InputError that starts with `source` unless targets are of a kind and in its range, or
// there are none.
void validate_targets(const Dataset& dataset, const std::string& source);

// Makes it a dataset of inputs alone: targets f32 [N, 0], without classes and their names.
void drop_targets(Dataset& dataset);
// False where drop_targets() has made it one.
bool has_targets(const Dataset& dataset);

// "targets f32 [3]": of one sample; texts may have any length.
std::string target_text(const Dataset& dataset);

// n / (classes * count) for each class, 0 for a class without samples: classes then weigh the same
// together, whatever their numbers are.
std::vector<double> balanced_class_weights(const Dataset& dataset);
// (n - count) / count for each class, 1 for a class without samples, of marks.
std::vector<double> balanced_positive_weights(const Dataset& dataset);

}  // namespace steelyard
