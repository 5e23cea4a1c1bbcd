// How `predict` prints what a model says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace steelyard::cli {

enum class PredictionFormat { kText, kCsv, kJson };

// Prints rows as they come: text, a line of CSV (RFC 4180), or an entry of a JSON array.
class PredictionPrinter {
 public:
  // `classes` are the names of the outputs of a model that classifies; empty: their numbers.
  PredictionPrinter(PredictionFormat format, bool classifies, std::vector<std::string> classes)
      : format_(format), classifies_(classifies), classes_(std::move(classes)) {}

  // The sample by its name, or its number as a text.
  void print(const std::string& sample, std::span<const float> outputs);
  // Behind the last row.
  void finish();

 private:
  void print_csv(const std::string& sample, std::span<const float> values);
  void print_json(const std::string& sample, std::span<const float> values);
  void print_text(const std::string& sample, std::span<const float> values) const;
  std::string class_name(std::size_t index) const;

  PredictionFormat format_;
  bool classifies_;
  std::vector<std::string> classes_;
  std::int64_t rows_ = 0;
};

}  // namespace steelyard::cli
