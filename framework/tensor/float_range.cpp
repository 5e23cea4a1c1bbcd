#include "steelyard/framework/tensor/float_range.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <limits>

#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

template <typename T>
std::string shortest(T value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Throws at the first value that `is_bad`: "what: before VALUE at [position] after".
template <typename T, typename F>
void refuse(const Tensor& tensor, const std::string& what, const std::string& before,
            const std::string& after, const F& is_bad) {
  const auto values = tensor.span<T>();
  const auto bad = std::find_if(values.begin(), values.end(), is_bad);
  if (bad == values.end()) return;
  std::int64_t offset = bad - values.begin();
  Shape position(tensor.shape().size());
  for (std::size_t i = position.size(); i-- > 0; offset /= tensor.shape()[i]) {
    position[i] = offset % tensor.shape()[i];
  }
  throw InputError(what + ": " + before + shortest(*bad) + " at " + shape_string(position) + after);
}

}  // namespace

void require_within_float32(const Tensor& tensor, const std::string& what) {
  if (tensor.dtype() != DType::kF64) return;
  refuse<double>(tensor, what, "", " is beyond float32", [](double v) {
    return std::isfinite(v) && std::abs(v) > std::numeric_limits<float>::max();
  });
}

bool is_whole_and_rounded(double value) {
  if (value != std::trunc(value) || static_cast<double>(static_cast<float>(value)) == value) {
    return false;
  }
  std::array<char, 32> text{};
  const auto [end, error] =
      std::to_chars(text.begin(), text.end(), value, std::chars_format::general, FLT_DIG);
  double of_few_digits = 0;
  std::from_chars(text.begin(), end, of_few_digits);
  return of_few_digits != value;
}

void require_whole_numbers_kept(const Tensor& tensor, const std::string& what) {
  if (tensor.dtype() != DType::kF64) return;
  constexpr double kAllAreWhole = 0x1p53;
  refuse<double>(tensor, what, "", " would be rounded to float32 (subtract an offset)",
                 [](double v) { return std::abs(v) < kAllAreWhole && is_whole_and_rounded(v); });
}

Tensor whole_numbers(const Tensor& integers, const std::string& what) {
  constexpr std::int64_t kMost = std::int64_t{1} << std::numeric_limits<float>::digits;
  const Tensor wide = integers.to(DType::kI64);
  refuse<std::int64_t>(wide, what, "", " is beyond the whole numbers of float32",
                       [](std::int64_t v) { return v < -kMost || v > kMost; });
  return wide.to(DType::kF32);
}

void require_finite_values(const Tensor& tensor, const std::string& what) {
  if (!is_floating(tensor.dtype())) return;
  const auto is_bad = [](auto v) { return !std::isfinite(v); };
  const std::string expected = "expected finite values, got ";
  if (tensor.dtype() == DType::kF64) return refuse<double>(tensor, what, expected, "", is_bad);
  refuse<float>(tensor.to(DType::kF32), what, expected, "", is_bad);
}

}  // namespace steelyard
