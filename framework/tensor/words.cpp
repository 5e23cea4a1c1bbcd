#include "steelyard/framework/tensor/words.h"

#include <stdexcept>

namespace steelyard {

void throw_no_row(long long value) {
  throw std::logic_error("[words] no row for the value " + std::to_string(value));
}

void throw_unknown_word(const std::string& known, std::string_view word) {
  throw std::invalid_argument("expected one of " + known + ", got '" + std::string(word) + "'");
}

}  // namespace steelyard
