#include "steelyard/recipes/searches/boxes.h"

#include <algorithm>
#include <iterator>

namespace steelyard {
namespace {

constexpr float kLeastScore = 0.25F;
constexpr float kMostOverlap = 0.45F;  // of two boxes of one class that are both kept
constexpr float kSameBox = 0.5F;
constexpr std::int64_t kBoxValues = 4;

using SampleValues = std::span<const float>;

struct Box {
  float x0, y0, x1, y1, score;
  std::int64_t label;
};

float area(const Box& box) {
  return std::max(box.x1 - box.x0, 0.0F) * std::max(box.y1 - box.y0, 0.0F);
}

float overlap(const Box& a, const Box& b) {
  const Box both{
      std::max(a.x0, b.x0), std::max(a.y0, b.y0), std::min(a.x1, b.x1), std::min(a.y1, b.y1), 0, 0};
  const float shared = area(both), all = area(a) + area(b) - shared;
  return all > 0 ? shared / all : 0;
}

float value_of(const AnchorValues& where, SampleValues sample, std::int64_t anchor,
               std::int64_t value) {
  return sample[static_cast<std::size_t>(where.at(anchor, value))];
}

Box box_of(const DetectionHead& head, SampleValues sample, std::int64_t anchor) {
  const auto value = [&](std::int64_t i) { return value_of(head.boxes, sample, anchor, i); };
  const auto score = [&](std::int64_t i) { return value_of(head.scores, sample, anchor, i); };
  Box box{value(0), value(1), value(2), value(3), 0, 0};
  if (!head.corners) {
    box = {value(0) - value(2) / 2,
           value(1) - value(3) / 2,
           value(0) + value(2) / 2,
           value(1) + value(3) / 2,
           0,
           0};
  }
  const float there = head.objectness ? score(0) : 1;
  box.score = head.classes == 0 ? there : 0;
  for (std::int64_t i = 0; i < head.classes; ++i) {
    if (i == head.nothing) continue;
    const float own = there * score((head.objectness ? 1 : 0) + i);
    if (own > box.score) {
      box.score = own;
      box.label = i;
    }
  }
  return box;
}

// The best first.
std::vector<Box> boxes_of(const DetectionHead& head, SampleValues sample) {
  std::vector<Box> found;
  for (std::int64_t anchor = 0; anchor < head.anchors; ++anchor) {
    const Box box = box_of(head, sample, anchor);
    if (box.score >= kLeastScore) found.push_back(box);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Box& a, const Box& b) { return a.score > b.score; });
  std::vector<Box> kept;
  for (const Box& box : found) {
    const bool repeats = std::any_of(kept.begin(), kept.end(), [&](const Box& other) {
      return other.label == box.label && overlap(other, box) > kMostOverlap;
    });
    if (!repeats) kept.push_back(box);
  }
  return kept;
}

// Boxes of one class that overlap by half, each with the nearest that no better one took.
std::int64_t matched_boxes(const std::vector<Box>& expected, std::vector<Box> found) {
  std::int64_t matched = 0;
  for (const Box& box : expected) {
    const auto better = [&](const Box& a, const Box& b) {
      return overlap(box, a) < overlap(box, b);
    };
    const auto end = std::partition(found.begin(), found.end(),
                                    [&](const Box& other) { return other.label == box.label; });
    const auto nearest = std::max_element(found.begin(), end, better);
    if (nearest == end || overlap(box, *nearest) < kSameBox) continue;
    ++matched;
    found.erase(nearest);
  }
  return matched;
}

Shape without_ones(const Shape& shape) {
  Shape sizes;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(sizes),
               [](std::int64_t size) { return size != 1; });
  return sizes;
}

// The values of a table with two dimensions, its rows of anchors or of values.
AnchorValues anchor_values(std::int64_t first, bool rows_of_anchors, std::int64_t anchors,
                           std::int64_t values) {
  return rows_of_anchors ? AnchorValues{first, values, 1} : AnchorValues{first, 1, anchors};
}

const std::string& type_at(const HeadOutput& output, std::int64_t value,
                           const std::vector<std::string>& types) {
  return types.at(static_cast<std::size_t>(output.sources[static_cast<std::size_t>(value)]));
}

// Whether a layer gives the value, which is not yet a place then.
bool is_raw(const std::string& type) { return type.starts_with("Conv") || type == "Linear"; }

// The type of the module that gives all values; "" where there are several.
std::string only_type(const HeadOutput& output, const std::vector<std::string>& types) {
  const std::int32_t first = output.sources.front();
  const bool all = std::all_of(output.sources.begin(), output.sources.end(),
                               [&](std::int32_t source) { return source == first; });
  return all ? types.at(static_cast<std::size_t>(first)) : "";
}

// Where the scores of as many anchors lie, and how many each has; nothing of another shape.
struct Scores {
  AnchorValues values;
  std::int64_t classes;
};
std::optional<Scores> scores_of(const HeadOutput& output, std::int64_t anchors) {
  const Shape sizes = without_ones(output.shape);
  if (sizes == Shape{anchors}) return Scores{{output.first, 1, 1}, 1};
  if (sizes.size() != 2 || (sizes[0] != anchors && sizes[1] != anchors)) return std::nullopt;
  const bool rows = sizes[0] == anchors;
  const std::int64_t classes = sizes[rows ? 1 : 0];
  return Scores{anchor_values(output.first, rows, anchors, classes), classes};
}

SampleValues sample_of(const Tensor& outputs, std::int64_t sample) {
  const std::int64_t values = outputs.size() / outputs.dim(0);
  return {outputs.data<float>() + sample * values, static_cast<std::size_t>(values)};
}

// The class that is the largest for most anchors.
std::int64_t commonest_class(const DetectionHead& head, const Tensor& outputs) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(head.classes));
  for (std::int64_t i = 0; i < outputs.dim(0); ++i) {
    const SampleValues sample = sample_of(outputs, i);
    for (std::int64_t anchor = 0; anchor < head.anchors; ++anchor) {
      std::int64_t largest = 0;
      for (std::int64_t j = 1; j < head.classes; ++j) {
        if (value_of(head.scores, sample, anchor, j) >
            value_of(head.scores, sample, anchor, largest)) {
          largest = j;
        }
      }
      ++counts[static_cast<std::size_t>(largest)];
    }
  }
  return std::max_element(counts.begin(), counts.end()) - counts.begin();
}

}  // namespace

std::optional<DetectionHead> detection_head(const HeadOutput& output,
                                            const std::vector<std::string>& types) {
  const Shape sizes = without_ones(output.shape);
  if (sizes.size() != 2 || shape_size(output.shape) != std::ssize(output.sources)) {
    return std::nullopt;
  }
  for (const bool rows : {false, true}) {
    const std::int64_t values = sizes[rows ? 1 : 0], anchors = sizes[rows ? 0 : 1];
    if (values <= kBoxValues) continue;
    const AnchorValues own = anchor_values(0, rows, anchors, values);
    const auto fits = [&](std::int64_t anchor, std::int64_t value) {
      const std::string& type = type_at(output, own.at(anchor, value), types);
      return value < kBoxValues ? type != "Sigmoid" && !is_raw(type) : type == "Sigmoid";
    };
    bool all = true;
    for (std::int64_t anchor = 0; anchor < anchors && all; ++anchor) {
      for (std::int64_t value = 0; value < values && all; ++value) all = fits(anchor, value);
    }
    if (!all) continue;
    DetectionHead head{anchors, values - kBoxValues - (rows ? 1 : 0)};
    head.boxes = anchor_values(output.first, rows, anchors, values);
    head.scores = head.boxes;
    head.scores.first = head.boxes.at(0, kBoxValues);
    head.objectness = rows;
    return head;
  }
  return std::nullopt;
}

std::optional<DetectionHead> detection_head(const HeadOutput& boxes, const HeadOutput& scores,
                                            const std::vector<std::string>& types) {
  const Shape sizes = without_ones(boxes.shape);
  if (sizes.size() != 2 || (sizes[0] != kBoxValues && sizes[1] != kBoxValues)) return std::nullopt;
  const bool rows = sizes[1] == kBoxValues;
  const std::int64_t anchors = sizes[rows ? 0 : 1];
  const std::optional<Scores> found = scores_of(scores, anchors);
  const std::string type = only_type(scores, types);
  const bool softmax = type == "Softmax" && scores.shape.back() == found.value_or(Scores{}).classes;
  if (!found || (type != "Sigmoid" && !(softmax && found->classes > 1))) return std::nullopt;
  const bool computed = std::none_of(
      boxes.sources.begin(), boxes.sources.end(),
      [&](std::int32_t source) { return is_raw(types.at(static_cast<std::size_t>(source))); });
  if (!computed) return std::nullopt;
  return DetectionHead{.anchors = anchors,
                       .classes = found->classes,
                       .boxes = anchor_values(boxes.first, rows, anchors, kBoxValues),
                       .scores = found->values,
                       .softmax = softmax};
}

std::optional<DetectionHead> settled(DetectionHead head, const Tensor& in_float) {
  if (head.softmax) head.nothing = commonest_class(head, in_float);
  head.corners = true;
  bool has_sizes = true;
  for (std::int64_t i = 0; i < in_float.dim(0); ++i) {
    const SampleValues sample = sample_of(in_float, i);
    for (std::int64_t anchor = 0; anchor < head.anchors; ++anchor) {
      const auto value = [&](std::int64_t j) { return value_of(head.boxes, sample, anchor, j); };
      head.corners = head.corners && value(2) >= value(0) && value(3) >= value(1);
      has_sizes = has_sizes && ((value(2) >= 0 && value(3) >= 0) ||
                                box_of(head, sample, anchor).score < kLeastScore);
    }
  }
  if (!head.corners && !has_sizes) return std::nullopt;
  return head;
}

std::optional<double> BoxAgreement::percent() const {
  if (in_float + quantized == 0) return std::nullopt;
  return 200 * static_cast<double>(matched) / static_cast<double>(in_float + quantized);
}

BoxAgreement compare_boxes(const DetectionHead& head, const Tensor& in_float,
                           const Tensor& quantized) {
  BoxAgreement agreement;
  for (std::int64_t i = 0; i < in_float.dim(0); ++i) {
    const std::vector<Box> expected = boxes_of(head, sample_of(in_float, i));
    const std::vector<Box> found = boxes_of(head, sample_of(quantized, i));
    agreement.in_float += std::ssize(expected);
    agreement.quantized += std::ssize(found);
    agreement.matched += matched_boxes(expected, found);
  }
  return agreement;
}

}  // namespace steelyard
