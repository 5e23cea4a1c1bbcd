// Boxes of a detector whose only output holds them beside the scores of classes, and how many of
// them two forms of the detector agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// Where an output has the boxes and scores of its anchors. A box is its middle, width and height,
// or two of its corners.
struct DetectionHead {
  std::int64_t anchors = 0;
  std::int64_t classes = 0;
  bool row_of_anchor = false;  // [anchors, values]; else [values, anchors]
  // Rows have a chance that there is anything between the box and the classes, as YOLOv5's.
  bool objectness = false;
  bool corners = false;

  bool operator==(const DetectionHead&) const = default;
};

// The head of an output [values, anchors] or [anchors, values], dimensions of 1 apart, whose first
// four values are computed numbers and whose others are of a Sigmoid; nothing of another. `sources`
// are, for each value of a sample, indices of `types`: the modules that give them.
std::optional<DetectionHead> detection_head(const Shape& shape,
                                            std::span<const std::int32_t> sources,
                                            const std::vector<std::string>& types);

// Whether the boxes of an output are corners: the second is beyond the first in all of them.
bool has_corners(const DetectionHead& head, std::span<const float> output);

struct BoxAgreement {
  std::int64_t matched = 0;  // pairs of one class that overlap by half (IoU)
  std::int64_t in_float = 0, quantized = 0;

  BoxAgreement& operator+=(const BoxAgreement& other);
  // 2 matched / (in_float + quantized) in percent; nothing without boxes.
  std::optional<double> percent() const;
};

// Compares the boxes of one sample with a score of at least .25 that no better one of their class
// overlaps by .45.
BoxAgreement compare_boxes(const DetectionHead& head, std::span<const float> in_float,
                           std::span<const float> quantized);

}  // namespace steelyard
