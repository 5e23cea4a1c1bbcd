// The text form of QuantizationParams.
#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "steelyard/kernels/quant_plan/quant_names.h"
#include "steelyard/kernels/quant_plan/quantization_params.h"

namespace steelyard::kernels {
namespace {

template <typename T>
void append(std::string& text, T value) {
  char digits[32];  // enough for the shortest form of any double
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

template <typename T>
std::string list_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ',';
    append(text, value);
  }
  return text;
}

// Takes the fields of a line in their order.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  // The value of `key`, which has to be next.
  std::string_view field(std::string_view key) {
    const std::string_view token = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(std::min(rest_.size(), token.size() + 1));
    key_ = key;
    if (!token.starts_with(key) || token.substr(key.size(), 1) != "=") {
      fail("expected it as the next key", token);
    }
    return token.substr(key.size() + 1);
  }

  template <typename Enum>
  Enum one_of(std::string_view key, int count) {
    const std::string_view word = field(key);
    for (int i = 0; i < count; ++i) {
      if (word == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    fail("expected one of its words", word);
  }

  template <typename T>
  std::vector<T> list(std::string_view key) {
    std::string_view items = field(key);
    std::vector<T> values;
    while (!items.empty()) {
      const std::string_view item = items.substr(0, items.find(','));
      values.push_back(number<T>(item));
      items.remove_prefix(item.size());
      if (items == ",") fail("expected a number after the last comma", "");
      if (!items.empty()) items.remove_prefix(1);
    }
    return values;
  }

  template <typename T>
  T one(std::string_view key) {
    return number<T>(field(key));
  }

  void finish() const {
    if (!rest_.empty()) fail("expected nothing after it", rest_);
  }

  [[noreturn]] void fail(std::string_view expected, std::string_view got) const {
    std::string message = "[quantization_params] text form, '";
    message.append(key_).append("': ").append(expected).append(", got '").append(got).append("'");
    throw std::invalid_argument(message);
  }

 private:
  template <typename T>
  T number(std::string_view item) const {
    T value{};
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size()) {
      fail("expected a number", item);
    }
    return value;
  }

  std::string_view rest_;
  std::string_view key_;
};

}  // namespace

std::string QuantizationParams::to_text() const {
  std::string text;
  const auto field = [&text](const char* key, const std::string& value) {
    if (!text.empty()) text += ' ';
    text.append(key).append("=").append(value);
  };
  field("code_type", name_of(code_type));
  field("range", list_text<std::int32_t>({range.qmin, range.qmax}));
  field("symmetric", symmetric ? "true" : "false");
  field("granularity", name_of(granularity));
  field("axis", std::to_string(options.axis));
  field("group_size", std::to_string(options.group_size));
  field("block", list_text<std::int64_t>({options.block_rows, options.block_columns}));
  field("scale_type", name_of(scale_type));
  std::vector<double> scales;
  std::vector<std::int32_t> zero_points;
  for (const auto& [scale, zero_point] : qparams) {
    scales.push_back(scale);
    zero_points.push_back(zero_point);
  }
  field("scale", list_text(scales));
  field("zero_point", list_text(zero_points));
  field("lo", list_text(lo));
  field("hi", list_text(hi));
  return text;
}

QuantizationParams QuantizationParams::from_text(std::string_view text) {
  Reader reader(text);
  const auto pair = [&reader](std::string_view key, auto zero) {
    const auto values = reader.list<decltype(zero)>(key);
    if (values.size() != 2) reader.fail("expected 2 numbers", std::to_string(values.size()));
    return std::pair(values[0], values[1]);
  };
  QuantizationParams params;
  params.code_type = reader.one_of<CodeType>("code_type", 6);
  std::tie(params.range.qmin, params.range.qmax) = pair("range", std::int32_t{});
  const std::string_view symmetric = reader.field("symmetric");
  params.symmetric = symmetric == "true";
  if (!params.symmetric && symmetric != "false") {
    reader.fail("expected true or false", symmetric);
  }
  params.granularity = reader.one_of<Granularity>("granularity", kGranularityNames.size());
  params.options.axis = reader.one<int>("axis");
  params.options.group_size = reader.one<std::int64_t>("group_size");
  std::tie(params.options.block_rows, params.options.block_columns) = pair("block", std::int64_t{});
  params.scale_type = reader.one_of<ValueType>("scale_type", 4);
  const auto scales = reader.list<double>("scale");
  const auto zero_points = reader.list<std::int32_t>("zero_point");
  if (zero_points.size() != scales.size()) {
    reader.fail("expected one for each scale, " + std::to_string(scales.size()),
                std::to_string(zero_points.size()));
  }
  for (std::size_t i = 0; i < scales.size(); ++i) {
    params.qparams.push_back({scales[i], zero_points[i]});
  }
  params.lo = reader.list<double>("lo");
  params.hi = reader.list<double>("hi");
  reader.finish();
  return params;
}

}  // namespace steelyard::kernels
