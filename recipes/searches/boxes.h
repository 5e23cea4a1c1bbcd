// Boxes of a detector with the scores of their classes, in one output or in two, and how many of
// them two forms of the detector agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// Where the values of anchors lie among those of a sample's outputs.
struct AnchorValues {
  std::int64_t first = 0;
  std::int64_t of_anchor = 0;  // from one anchor to the next
  std::int64_t of_value = 0;

  std::int64_t at(std::int64_t anchor, std::int64_t value) const {
    return first + anchor * of_anchor + value * of_value;
  }
  bool operator==(const AnchorValues&) const = default;
};

// A box is its middle, width and height, or two of its corners.
struct DetectionHead {
  std::int64_t anchors = 0;
  std::int64_t classes = 0;
  AnchorValues boxes = {};
  AnchorValues scores = {};
  // The first score is the chance that there is anything, as YOLOv5's; those of classes follow.
  bool objectness = false;
  bool softmax = false;  // one of the classes says that there is nothing
  // What its values tell, see settled().
  bool corners = false;
  std::int64_t nothing = -1;

  bool operator==(const DetectionHead&) const = default;
};

// One of the outputs of a network.
struct HeadOutput {
  std::int64_t first = 0;  // its values, among those of a sample's outputs
  Shape shape = {};
  std::span<const std::int32_t> sources = {};  // for each value, which type of module gives it
};

// The head of an output [values, anchors] or [anchors, values], dimensions of 1 apart, whose first
// four values are computed numbers and whose others are of a Sigmoid; nothing of another.
std::optional<DetectionHead> detection_head(const HeadOutput& output,
                                            const std::vector<std::string>& types);
// The head of two outputs: numbers [anchors, 4] or [4, anchors] that no layer gives as they are,
// and for as many anchors scores of a Sigmoid, or of a Softmax over the last dimension.
std::optional<DetectionHead> detection_head(const HeadOutput& boxes, const HeadOutput& scores,
                                            const std::vector<std::string>& types);

// The head with what the float outputs f32 [N, values] tell: boxes are corners if the second is
// beyond the first in all of them, and the class of a Softmax that is the largest for most anchors
// says that there is nothing. Nothing where the numbers are no boxes: some that are found have
// negative sizes.
std::optional<DetectionHead> settled(DetectionHead head, const Tensor& in_float);

struct BoxAgreement {
  std::int64_t matched = 0;  // pairs of one class that overlap by half (IoU)
  std::int64_t in_float = 0, quantized = 0;

  // 2 matched / (in_float + quantized) in percent; nothing without boxes.
  std::optional<double> percent() const;
};

// Compares the boxes in outputs f32 [N, values] of as many samples: those with a score of at least
// .25 that no better one of their class overlaps by .45.
BoxAgreement compare_boxes(const DetectionHead& head, const Tensor& in_float,
                           const Tensor& quantized);

}  // namespace steelyard
