// How `predict` prints what a model says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/words.h"

namespace steelyard::cli {

enum class PredictionFormat { kText, kCsv, kJson };
inline constexpr Word<PredictionFormat> kPredictionFormatWords[] = {
    {PredictionFormat::kText, "text"},
    {PredictionFormat::kCsv, "csv"},
    {PredictionFormat::kJson, "json"}};
static_assert(is_complete<PredictionFormat>(kPredictionFormatWords, PredictionFormat::kJson));
constexpr std::span<const Word<PredictionFormat>> words_of(PredictionFormat) {
  return kPredictionFormatWords;
}

// What the outputs of a model are: values of a regression, logits or probabilities of classes,
// logits or probabilities of labels that a sample may have several of, scores of characters
// [frames, classes].
enum class OutputKind {
  kValues,
  kLogits,
  kProbabilities,
  kLabels,
  kLabelProbabilities,
  kCharacters
};

// Prints rows as they come: text, a line of CSV (RFC 4180), or an entry of a JSON array.
class PredictionPrinter {
 public:
  // `names` are those of the classes, labels or characters, empty: their numbers; or of the values
  // of a regression, which may have none. `characters`: how many there are, of kCharacters.
  // `with_errors`: whether a sample may have no outputs.
  PredictionPrinter(PredictionFormat format, OutputKind outputs, std::vector<std::string> names,
                    std::int64_t characters, bool with_errors)
      : format_(format),
        outputs_(outputs),
        names_(std::move(names)),
        characters_(static_cast<std::size_t>(characters)),
        with_errors_(with_errors) {}

  // Once, before all rows, which have so many outputs.
  void begin(std::size_t values);
  // The sample by its raw_name(), or its number as a text.
  void print(const std::string& sample, std::span<const float> outputs);
  // What is wrong with a sample that has no outputs.
  void print_error(const std::string& sample, const std::string& error);
  // Behind the last row.
  void finish();

 private:
  // `best`: the class, where values are of classes.
  void print_csv(const std::string& sample, std::size_t best, std::span<const float> values);
  void print_json(const std::string& sample, std::size_t best, std::span<const float> values);
  void print_text(const std::string& sample, std::span<const float> values) const;
  std::vector<std::size_t> labels_of(std::span<const float> outputs) const;
  void print_labels(const std::string& sample, const std::vector<std::size_t>& said,
                    std::span<const float> chances);
  void print_characters(const std::string& sample, std::span<const float> scores);
  // Between the sample and its values in CSV: their names.
  std::vector<std::string> csv_columns() const;
  // The last member of an entry: "key": {"a": 0.5, "b": 1}}
  void print_json_named(const char* key, std::span<const float> values) const;
  std::string class_name(std::size_t index) const;
  // Whether the values of a regression have names.
  bool names_values(std::size_t values) const { return names_.size() == values; }
  bool classifies() const {
    return outputs_ == OutputKind::kLogits || outputs_ == OutputKind::kProbabilities;
  }

  PredictionFormat format_;
  OutputKind outputs_;
  std::vector<std::string> names_;
  std::size_t characters_;
  bool with_errors_;
  std::size_t values_ = 0;
  std::int64_t rows_ = 0;
};

}  // namespace steelyard::cli
