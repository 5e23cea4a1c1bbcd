#include "steelyard/qat/model/range_check.h"

#include <iomanip>
#include <optional>
#include <sstream>

namespace steelyard::qat {
namespace {

// Clipping that costs three bits and more: the noise of clipped values is more than this many times
// that of all others, and more than this fraction of the values is clipped.
constexpr double kClippingToRounding = 100;
constexpr double kClippedFraction = 0.01;
constexpr double kLeastDecibelsPerBit = 2.5;

std::optional<DoubtfulRange::Fault> fault_of(const QuantizationError& error, int bits) {
  const auto sqnr = error.sqnr_db();
  if (!sqnr) return std::nullopt;
  const double rounding = error.noise - error.clipping_noise;
  const bool clips = error.clipped_fraction() > kClippedFraction &&
                     error.clipping_noise > kClippingToRounding * rounding;
  if (!clips && *sqnr >= kLeastDecibelsPerBit * bits) return std::nullopt;
  return error.clipping_noise > rounding ? DoubtfulRange::Fault::kTooNarrow
                                         : DoubtfulRange::Fault::kTooWide;
}

}  // namespace

std::vector<DoubtfulRange> doubtful_ranges(std::span<const MeasuredTensor> tensors) {
  std::vector<DoubtfulRange> found;
  for (const MeasuredTensor& tensor : tensors) {
    const FakeQuantize& quantizer = *tensor.quantizer;
    if (!quantizer.quantizing() || !tensor.error) continue;
    const int bits = quantizer.scheme().bits;
    const auto fault = fault_of(*tensor.error, bits);
    if (!fault) continue;
    // Weights of few bits with min_max have a low SQNR by choice and are not reported; a range that
    // the weights outgrew is.
    if (quantizer.of_weights() && *fault != DoubtfulRange::Fault::kTooNarrow) continue;
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
