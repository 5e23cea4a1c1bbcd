#include "cli/prediction_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "steelyard/framework/printable.h"

namespace steelyard::cli {
namespace {

// The chances that scores stand for.
std::vector<float> softmax(std::span<const float> outputs) {
  const double best = *std::max_element(outputs.begin(), outputs.end());
  double sum = 0;
  for (const float value : outputs) sum += std::exp(static_cast<double>(value) - best);
  std::vector<float> chances;
  for (const float value : outputs) {
    chances.push_back(static_cast<float>(std::exp(static_cast<double>(value) - best) / sum));
  }
  return chances;
}

std::size_t best_of(std::span<const float> values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string PredictionPrinter::class_name(std::size_t index) const {
  return index < classes_.size() ? classes_[index] : std::to_string(index);
}

void PredictionPrinter::print(const std::string& sample, std::span<const float> outputs) {
  const std::vector<float> chances = classifies_ ? softmax(outputs) : std::vector<float>();
  const std::span<const float> values = classifies_ ? std::span<const float>(chances) : outputs;
  if (format_ == PredictionFormat::kText) {
    // The largest output, also where the chances of several round to 1.
    if (classifies_) {
      const std::size_t best = best_of(outputs);
      const std::string name =
          classes_.empty() ? "class " + std::to_string(best) : printable(class_name(best));
      fmt::print("{}  {}  {:.3f}\n", printable(sample, 4096), name, values[best]);
    } else {
      print_text(sample, values);
    }
  } else if (format_ == PredictionFormat::kCsv) {
    print_csv(sample, values);
  } else {
    print_json(sample, values);
  }
  ++rows_;
}

void PredictionPrinter::print_text(const std::string& sample, std::span<const float> values) const {
  fmt::print("{}", printable(sample, 4096));
  for (const float value : values) fmt::print("  {}", value);
  fmt::print("\n");
}

void PredictionPrinter::print_csv(const std::string& sample, std::span<const float> values) {
  if (rows_ == 0) {
    fmt::print("sample{}", classifies_ ? ",class,probability" : "");
    for (std::size_t i = 0; i < values.size(); ++i) {
      fmt::print(",{}", csv_field(classifies_ ? class_name(i) : "output_" + std::to_string(i)));
    }
    fmt::print("\n");
  }
  fmt::print("{}", csv_field(sample));
  if (classifies_) {
    const std::size_t best = best_of(values);
    fmt::print(",{},{}", csv_field(class_name(best)), values[best]);
  }
  for (const float value : values) fmt::print(",{}", value);
  fmt::print("\n");
}

void PredictionPrinter::print_json(const std::string& sample, std::span<const float> values) {
  fmt::print("{}{{\"sample\": {}", rows_ == 0 ? "[\n" : ",\n", json_text(sample));
  if (classifies_) {
    const std::size_t best = best_of(values);
    fmt::print(", \"class\": {}, \"probability\": {}, \"probabilities\": {{",
               json_text(class_name(best)), values[best]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      fmt::print("{}{}: {}", i == 0 ? "" : ", ", json_text(class_name(i)), values[i]);
    }
    fmt::print("}}}}");
    return;
  }
  fmt::print(", \"outputs\": [");
  for (std::size_t i = 0; i < values.size(); ++i) {
    fmt::print("{}{}", i == 0 ? "" : ", ", values[i]);
  }
  fmt::print("]}}");
}

void PredictionPrinter::finish() {
  if (format_ == PredictionFormat::kJson) fmt::print("{}]\n", rows_ == 0 ? "[" : "\n");
}

}  // namespace steelyard::cli
