// Classes that have names, and the labels that stand for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// Where the texts of samples are from, for messages.
struct TextSource {
  std::string name;  // of all of them
  // The place of one text: its file and line. Absent: the name.
  std::function<std::string(std::size_t)> place = {};

  std::string place_of(std::size_t sample) const { return place ? place(sample) : name; }
};

// The different names in their order: by number where all are whole numbers, else by their bytes.
// Throws InputError that starts with `source` for more than kMaxClasses.
std::vector<std::string> sorted_classes(std::vector<std::string> names, const std::string& source);

// i64 [samples]: the label of each sample's class. Throws InputError that starts with the sample's
// place for a class that `names`, those of `names_source`, do not have.
Tensor class_labels(const std::vector<std::string>& samples, const std::vector<std::string>& names,
                    const TextSource& source, const std::string& names_source);

// The lines of a text file, UTF-8, each the name of a class, a label or, with `characters`, one
// character; those follow "", the blank. Throws InputError with file and line for a name that is
// empty or there twice.
std::vector<std::string> read_names(const std::filesystem::path& path, bool characters);

// 1 + the largest of integer labels; 0 for other targets. Throws InputError that starts with
// `source` where that is more than kMaxClasses: a stray label must not become a model of a million
// outputs.
std::int64_t count_classes(const Tensor& targets, const std::string& source);

}  // namespace steelyard
