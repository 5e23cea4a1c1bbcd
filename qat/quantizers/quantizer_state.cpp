#include "steelyard/qat/quantizers/quantizer_state.h"

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {
namespace {

constexpr std::int64_t kMostCounted = std::int64_t{1} << 59;  // more than any run counts
constexpr int kLargestExponent = 150;                         // of bin widths, and of their inverse

template <typename T, typename F>
void each_value(const Tensor& tensor, const F& holds, const std::string& expected) {
  for (const T value : tensor.span<T>()) {
    if (!holds(value)) {
      throw std::invalid_argument("expected " + expected + ", got " + std::to_string(value));
    }
  }
}

// A range before any observation goes from +infinity to -infinity.
template <typename T>
void check_floats(const Tensor& tensor, const std::string& name) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const auto ends_with = [&](auto... ends) { return (name.ends_with(ends) || ...); };
  if (ends_with("min", "lo")) {
    each_value<T>(
        tensor, [](T v) { return v > -kInfinity; }, "a lower end");
  } else if (ends_with("max", "hi")) {
    each_value<T>(
        tensor, [](T v) { return v < kInfinity; }, "an upper end");
  } else if (name == "initial_scale") {
    each_value<T>(
        tensor, [](T v) { return v > 0 && v < kInfinity; }, "a finite scale above 0");
  } else if (name == "scale_floor") {
    each_value<T>(
        tensor, [](T v) { return v >= 0 && v < kInfinity; }, "a finite scale");
  }
}

using TensorsByName = std::map<std::string, Tensor>;

void check_tensor(const Tensor& tensor, const std::string& name) {
  if (tensor.dtype() == DType::kF32) return check_floats<float>(tensor, name);
  if (tensor.dtype() == DType::kF64) return check_floats<double>(tensor, name);
  if (tensor.dtype() == DType::kI64) {
    std::int64_t left = kMostCounted;  // bins may be joined
    each_value<std::int64_t>(
        tensor,
        [&left](std::int64_t v) {
          if (v < 0 || v > left) return false;
          left -= v;
          return true;
        },
        "a count, all together at most 2^59");
  }
  if (name == "observer_exponent") {
    each_value<std::int32_t>(
        tensor, [](std::int32_t v) { return v >= -kLargestExponent && v <= kLargestExponent; },
        "the exponent of a float");
  }
}

[[noreturn]] void refuse(const std::string& tensor, const std::string& why) {
  throw std::invalid_argument(tensor + " is no quantizer's state: " + why);
}

// The width, and scales and zero points on its grid.
void check_grid(const FakeQuantize& quantizer, const TensorsByName& state,
                const std::string& suffix) {
  for (const char* name : {"switches", "scale", "zero_point"}) {
    if (!state.contains(name)) return;
  }
  const Tensor& switches = state.at("switches");
  const auto scheme = quantizer.scheme_in(switches);
  if (!scheme) {
    refuse("switches" + suffix,
           "expected a width of 2 to " + std::to_string(quantizer.most_bits()) + " bits, got " +
               std::to_string(switches.span<std::uint8_t>().back()));  // the last one
  }
  const auto scales = state.at("scale").span<float>();
  const auto zero_points = state.at("zero_point").span<std::int32_t>();
  const kernels::CodeRange codes = scheme->code_range();
  for (std::size_t c = 0; c < scales.size(); ++c) {
    try {
      observers::validate({scales[c], zero_points[c]}, *scheme, "channel " + std::to_string(c));
    } catch (const std::invalid_argument& error) {
      const std::int32_t z = zero_points[c];
      const bool fits = scheme->symmetric ? z == 0 : codes.qmin <= z && z <= codes.qmax;
      refuse((fits ? "scale" : "zero_point") + suffix, error.what());
    }
  }
}

}  // namespace

void check_quantizer_state(const FakeQuantize& quantizer, const TensorsByName& state,
                           const std::string& suffix) {
  check_grid(quantizer, state, suffix);
  for (const auto& [name, tensor] : state) {
    try {
      check_tensor(tensor, name);
    } catch (const std::invalid_argument& error) {
      refuse(name + suffix, error.what());
    }
  }
}

}  // namespace steelyard::qat
