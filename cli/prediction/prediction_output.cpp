#include "cli/prediction/prediction_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/metrics.h"

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

std::vector<float> sigmoid(std::span<const float> outputs) {
  std::vector<float> chances;
  for (const float value : outputs) {
    chances.push_back(static_cast<float>(1 / (1 + std::exp(-static_cast<double>(value)))));
  }
  return chances;
}

std::size_t best_of(std::span<const float> values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

bool is_number(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() &&
         text.find_first_of("0123456789") == 0;
}

// Control characters are escaped as in a message. A spreadsheet computes what begins as a formula
// does, unless it is a number: "'" before it says that it is text.
std::string csv_field(const std::string& text) {
  std::string shown = printable(text, std::string::npos);
  if (shown.find_first_of("=+-@") == 0 && !is_number(shown)) shown.insert(0, "'");
  if (shown.find_first_of(",\"") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string json_text(const std::string& text) {
  return printable_json(
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// JSON is UTF-8, the name of a file need not be: a byte that is not becomes the private character
// U+EF00 plus its value.
std::string json_name(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    if (length > 0) {
      text += name.substr(0, length);
    } else {
      const auto byte = static_cast<unsigned char>(name[0]);
      text +=
          {'\xEE', static_cast<char>(0xBC | byte >> 6), static_cast<char>(0x80 | (byte & 0x3F))};
    }
    name.remove_prefix(std::max<std::size_t>(1, length));
  }
  return json_text(text);
}

}  // namespace

std::string PredictionPrinter::class_name(std::size_t index) const {
  return index < names_.size() ? names_[index] : std::to_string(index);
}

void PredictionPrinter::print(const std::string& sample, std::span<const float> outputs) {
  std::vector<float> chances;
  if (outputs_ == OutputKind::kLogits) chances = softmax(outputs);
  if (outputs_ == OutputKind::kLabels) chances = sigmoid(outputs);
  const std::span<const float> values = chances.empty() ? outputs : std::span<const float>(chances);
  // The outputs choose, whose chances may round to equal ones.
  const std::size_t best = best_of(outputs);
  if (outputs_ == OutputKind::kLabels || outputs_ == OutputKind::kLabelProbabilities) {
    print_labels(sample, labels_of(outputs), values);
  } else if (outputs_ == OutputKind::kCharacters) {
    print_characters(sample, values);
  } else if (format_ == PredictionFormat::kText) {
    if (classifies()) {
      const std::string name =
          names_.empty() ? "class " + std::to_string(best) : printable(class_name(best));
      fmt::print("{}  {}  {:.3f}\n", printable(sample, kMaxPathBytes), name, values[best]);
    } else {
      print_text(sample, values);
    }
  } else if (format_ == PredictionFormat::kCsv) {
    print_csv(sample, best, values);
  } else {
    print_json(sample, best, values);
  }
  ++rows_;
}

// The labels whose chance is above 1/2.
std::vector<std::size_t> PredictionPrinter::labels_of(std::span<const float> outputs) const {
  const float limit = outputs_ == OutputKind::kLabels ? 0 : 0.5F;
  std::vector<std::size_t> said;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] > limit) said.push_back(i);
  }
  return said;
}

void PredictionPrinter::print_labels(const std::string& sample,
                                     const std::vector<std::size_t>& said,
                                     std::span<const float> chances) {
  if (format_ == PredictionFormat::kJson) {
    fmt::print("{}{{\"sample\": {}, \"labels\": [", rows_ == 0 ? "[\n" : ",\n", json_name(sample));
    for (const std::size_t i : said) {
      fmt::print("{}{}", i == said[0] ? "" : ", ", json_text(class_name(i)));
    }
    fmt::print("], ");
    print_json_named("probabilities", chances);
    return;
  }
  if (format_ == PredictionFormat::kCsv) {
    std::string labels;
    for (const std::size_t i : said) labels += (labels.empty() ? "" : "|") + class_name(i);
    fmt::print("{},{}", csv_field(sample), csv_field(labels));
    for (const float chance : chances) fmt::print(",{}", chance);
    fmt::print("{}\n", with_errors_ ? "," : "");
    return;
  }
  fmt::print("{}  ", printable(sample, kMaxPathBytes));
  for (const std::size_t i : said) {
    fmt::print("{}{} {:.3f}", i == said[0] ? "" : ", ", printable(class_name(i)), chances[i]);
  }
  fmt::print("{}\n", said.empty() ? "-" : "");
}

// What the best characters of the frames spell.
void PredictionPrinter::print_characters(const std::string& sample, std::span<const float> scores) {
  std::vector<std::int64_t> frames;
  for (std::size_t t = 0; t < scores.size(); t += characters_) {
    frames.push_back(static_cast<std::int64_t>(best_of(scores.subspan(t, characters_))));
  }
  std::string text;
  for (const std::int64_t character : spelled(frames)) {
    if (names_.empty() && !text.empty()) text += ' ';  // numbers
    text += class_name(static_cast<std::size_t>(character));
  }
  if (format_ == PredictionFormat::kJson) {
    fmt::print("{}{{\"sample\": {}, \"text\": {}}}", rows_ == 0 ? "[\n" : ",\n", json_name(sample),
               json_text(text));
  } else if (format_ == PredictionFormat::kCsv) {
    fmt::print("{},{}{}\n", csv_field(sample), csv_field(text), with_errors_ ? "," : "");
  } else {
    fmt::print("{}  {}\n", printable(sample, kMaxPathBytes), printable(text, kMaxPathBytes));
  }
}

std::vector<std::string> PredictionPrinter::csv_columns() const {
  if (outputs_ == OutputKind::kCharacters) return {"text"};
  std::vector<std::string> columns;
  if (classifies()) {
    columns = {"class", "probability"};
  } else if (outputs_ != OutputKind::kValues) {
    columns = {"labels"};
  }
  for (std::size_t i = 0; i < values_; ++i) {
    const bool named = outputs_ != OutputKind::kValues || names_values(values_);
    columns.push_back(named ? class_name(i) : "output_" + std::to_string(i));
  }
  return columns;
}

void PredictionPrinter::begin(std::size_t values) {
  values_ = values;
  if (format_ != PredictionFormat::kCsv) return;
  fmt::print("sample");
  for (const std::string& column : csv_columns()) fmt::print(",{}", csv_field(column));
  fmt::print("{}\n", with_errors_ ? ",error" : "");
}

void PredictionPrinter::print_error(const std::string& sample, const std::string& error) {
  if (format_ == PredictionFormat::kJson) {
    fmt::print("{}{{\"sample\": {}, \"error\": {}}}", rows_ == 0 ? "[\n" : ",\n", json_name(sample),
               json_text(error));
  } else if (format_ == PredictionFormat::kCsv) {
    fmt::print("{}{},{}\n", csv_field(sample), std::string(csv_columns().size(), ','),
               csv_field(error));
  } else {
    fmt::print("{}  error: {}\n", printable(sample, kMaxPathBytes),
               printable(error, kMaxPathBytes));
  }
  ++rows_;
}

void PredictionPrinter::print_json_named(const char* key, std::span<const float> values) const {
  fmt::print("\"{}\": {{", key);
  for (std::size_t i = 0; i < values.size(); ++i) {
    fmt::print("{}{}: {}", i == 0 ? "" : ", ", json_text(class_name(i)), values[i]);
  }
  fmt::print("}}}}");
}

void PredictionPrinter::print_text(const std::string& sample, std::span<const float> values) const {
  fmt::print("{}", printable(sample, kMaxPathBytes));
  const bool named = names_values(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    fmt::print("  {}{}{}", named ? printable(names_[i]) : "", named ? " " : "", values[i]);
  }
  fmt::print("\n");
}

void PredictionPrinter::print_csv(const std::string& sample, std::size_t best,
                                  std::span<const float> values) {
  fmt::print("{}", csv_field(sample));
  if (classifies()) {
    fmt::print(",{},{}", csv_field(class_name(best)), values[best]);
  }
  for (const float value : values) fmt::print(",{}", value);
  fmt::print("{}\n", with_errors_ ? "," : "");
}

void PredictionPrinter::print_json(const std::string& sample, std::size_t best,
                                   std::span<const float> values) {
  fmt::print("{}{{\"sample\": {}", rows_ == 0 ? "[\n" : ",\n", json_name(sample));
  if (classifies()) {
    fmt::print(", \"class\": {}, \"probability\": {}, ", json_text(class_name(best)), values[best]);
    print_json_named("probabilities", values);
    return;
  }
  fmt::print(", ");
  if (names_values(values.size())) {
    print_json_named("outputs", values);
    return;
  }
  fmt::print("\"outputs\": [");
  for (std::size_t i = 0; i < values.size(); ++i) {
    fmt::print("{}{}", i == 0 ? "" : ", ", values[i]);
  }
  fmt::print("]}}");
}

void PredictionPrinter::finish() {
  if (format_ == PredictionFormat::kJson) fmt::print("{}]\n", rows_ == 0 ? "[" : "\n");
}

}  // namespace steelyard::cli
