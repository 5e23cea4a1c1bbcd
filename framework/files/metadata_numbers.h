// Numbers in the metadata of checkpoints, which is text.
#pragma once

#include <charconv>
#include <string>
#include <type_traits>

#include "steelyard/framework/files/safetensors_header.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {

// Text that gives back the same double, bit for bit.
std::string exact_text(double value);

// The number of a key; of doubles as exact_text() writes them. Throws InputError that starts with
// `source` where it is missing or no number.
template <typename T>
T number_in(const TensorFileMetadata& metadata, const std::string& key, const std::string& source) {
  const auto found = metadata.find(key);
  T value{};
  if (found == metadata.end()) {
    throw InputError(source + ": not a training checkpoint, '" + key + "' is missing");
  }
  const char* begin = found->second.data();
  const char* end = begin + found->second.size();
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<T>) {
    result = std::from_chars(begin, end, value, std::chars_format::hex);
  } else {
    result = std::from_chars(begin, end, value);
  }
  if (result.ec != std::errc() || result.ptr != end) {
    throw InputError(source + ": '" + key + "' is '" + printable(found->second) +
                     "', expected a number");
  }
  return value;
}

// The double of a key, as number_in() gives it, which must be finite.
double finite_in(const TensorFileMetadata& metadata, const std::string& key,
                 const std::string& source);

}  // namespace steelyard
