#include "qat/range_check.h"

#include <cstdio>
#include <iomanip>
#include <optional>
#include <sstream>

namespace steelyard::qat {
namespace {

// Too narrow: the noise of clipped values is more than so many times the others', and more than so
// many of the values are clipped.
constexpr double kClippingToRounding = 4;
constexpr double kClippedFraction = 0.001;
// Too wide: the SQNR is below so many decibels a bit, less what real distributions cost.
constexpr double kDecibelsPerBit = 6.02;
constexpr double kAllowedDecibels = 26;

std::optional<DoubtfulRange::Fault> fault_of(const QuantizationError& error, int bits) {
  const auto sqnr = error.sqnr_db();
  if (!sqnr) return std::nullopt;
  const double rounding = error.noise - error.clipping_noise;
  if (error.clipped_fraction() > kClippedFraction &&
      error.clipping_noise > kClippingToRounding * rounding) {
    return DoubtfulRange::Fault::kTooNarrow;
  }
  if (*sqnr < kDecibelsPerBit * bits - kAllowedDecibels) return DoubtfulRange::Fault::kTooWide;
  return std::nullopt;
}

}  // namespace

std::vector<DoubtfulRange> doubtful_ranges(std::span<const MeasuredTensor> tensors) {
  std::vector<DoubtfulRange> found;
  for (const MeasuredTensor& tensor : tensors) {
    const FakeQuantize& quantizer = *tensor.quantizer;
    if (quantizer.role() != QuantizerRole::kActivation || !quantizer.quantizing()) continue;
    if (!tensor.error) continue;
    const int bits = quantizer.scheme().bits;
    if (getenv("RANGES_DEBUG"))
      printf("RANGE %s bits %d sqnr %.2f clipped %.6f ratio %.4f\n", tensor.name.c_str(), bits,
             tensor.error->sqnr_db().value_or(-1), tensor.error->clipped_fraction(),
             tensor.error->clipping_noise / (tensor.error->noise - tensor.error->clipping_noise));
    const auto fault = fault_of(*tensor.error, bits);
    if (!fault) continue;
    constexpr std::string_view kSuffix = "_quantizer";
    std::string name = tensor.name;
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    found.push_back({std::move(name), *fault, bits, *tensor.error->sqnr_db(),
                     tensor.error->clipped_fraction()});
  }
  return found;
}

std::string to_string(const DoubtfulRange& range) {
  const bool narrow = range.fault == DoubtfulRange::Fault::kTooNarrow;
  std::ostringstream text;
  text << std::fixed << range.tensor << ": too " << (narrow ? "narrow, " : "wide, ")
       << std::setprecision(2) << 100 * range.clipped_fraction << " % clipped, SQNR "
       << std::setprecision(1) << range.sqnr_db << " dB at " << range.bits << " bits";
  return text.str();
}

}  // namespace steelyard::qat
