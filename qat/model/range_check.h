// Finds ranges that do not fit the values: of activations, and of weights that outgrew a frozen
// range.
//
// A range is wrong if clipping costs about three bits or more, or if the SQNR is far too low for
// the number of bits. It is too narrow if clipped values have most of the noise, else too wide.
// docs/reports.md has the limits and the measurements that chose them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "steelyard/qat/model/measure.h"

namespace steelyard::qat {

struct DoubtfulRange {
  enum class Fault { kTooNarrow, kTooWide };

  std::string tensor;  // the quantizer's name without "_quantizer": "conv1.output", "fc.weight"
  Fault fault = Fault::kTooNarrow;
  int bits = 8;
  double sqnr_db = 0;
  double clipped_fraction = 0;
};

// The ranges that do not fit, among measured tensors that are quantized, in their order; for
// weights only ranges that are too narrow.
std::vector<DoubtfulRange> doubtful_ranges(std::span<const MeasuredTensor> tensors);

// "fc.output: too narrow, 6.10 % clipped, SQNR 13.2 dB at 8 bits".
std::string to_string(const DoubtfulRange& range);

}  // namespace steelyard::qat
