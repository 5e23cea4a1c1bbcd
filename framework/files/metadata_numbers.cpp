#include "steelyard/framework/files/metadata_numbers.h"

#include <cmath>

namespace steelyard {

std::string exact_text(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::hex).ptr;
  return {buffer, end};
}

double finite_in(const TensorFileMetadata& metadata, const std::string& key,
                 const std::string& source) {
  const auto value = number_in<double>(metadata, key, source);
  if (std::isfinite(value)) return value;
  throw InputError(source + ": expected a finite number as '" + key + "', got " +
                   std::to_string(value));
}

}  // namespace steelyard
