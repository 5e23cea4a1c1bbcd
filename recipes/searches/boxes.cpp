#include "steelyard/recipes/searches/boxes.h"

#include <algorithm>

namespace steelyard {
namespace {

constexpr float kLeastScore = 0.25F;
constexpr float kMostOverlap = 0.45F;  // of two boxes of one class that are both kept
constexpr float kSameBox = 0.5F;
constexpr std::int64_t kBoxValues = 4;

using Output = std::span<const float>;

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

// Values before the scores of classes.
std::int64_t before_classes(const DetectionHead& head) {
  return kBoxValues + (head.objectness ? 1 : 0);
}

float value_of(const DetectionHead& head, Output output, std::int64_t anchor, std::int64_t value) {
  const std::int64_t values = before_classes(head) + head.classes;
  const std::int64_t at =
      head.row_of_anchor ? anchor * values + value : value * head.anchors + anchor;
  return output[static_cast<std::size_t>(at)];
}

Box box_of(const DetectionHead& head, Output output, std::int64_t anchor) {
  const auto value = [&](std::int64_t i) { return value_of(head, output, anchor, i); };
  Box box{value(0), value(1), value(2), value(3), 0, 0};
  if (!head.corners) {
    box = {value(0) - value(2) / 2,
           value(1) - value(3) / 2,
           value(0) + value(2) / 2,
           value(1) + value(3) / 2,
           0,
           0};
  }
  const float there = head.objectness ? value(kBoxValues) : 1;
  box.score = head.classes == 0 ? there : 0;
  for (std::int64_t i = 0; i < head.classes; ++i) {
    const float score = there * value(before_classes(head) + i);
    if (score > box.score) {
      box.score = score;
      box.label = i;
    }
  }
  return box;
}

// The best first.
std::vector<Box> boxes_of(const DetectionHead& head, Output output) {
  std::vector<Box> found;
  for (std::int64_t anchor = 0; anchor < head.anchors; ++anchor) {
    const Box box = box_of(head, output, anchor);
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

}  // namespace

std::optional<DetectionHead> detection_head(const Shape& shape,
                                            std::span<const std::int32_t> sources,
                                            const std::vector<std::string>& types) {
  Shape sizes;
  for (const std::int64_t size : shape) {
    if (size != 1) sizes.push_back(size);
  }
  if (sizes.size() != 2 || shape_size(shape) != std::ssize(sources)) return std::nullopt;
  for (const bool rows : {false, true}) {
    const std::int64_t values = sizes[rows ? 1 : 0], anchors = sizes[rows ? 0 : 1];
    if (values <= kBoxValues) continue;
    const auto fits = [&](std::int64_t value, std::int64_t anchor) {
      const std::int64_t at = rows ? anchor * values + value : value * anchors + anchor;
      const std::string& type =
          types.at(static_cast<std::size_t>(sources[static_cast<std::size_t>(at)]));
      const bool raw = type.starts_with("Conv") || type == "Linear";  // not yet a place
      return value < kBoxValues ? type != "Sigmoid" && !raw : type == "Sigmoid";
    };
    bool all = true;
    for (std::int64_t value = 0; value < values && all; ++value) {
      for (std::int64_t anchor = 0; anchor < anchors && all; ++anchor) all = fits(value, anchor);
    }
    if (!all) continue;
    return DetectionHead{anchors, values - kBoxValues - (rows ? 1 : 0), rows, rows};
  }
  return std::nullopt;
}

bool has_corners(const DetectionHead& head, Output output) {
  for (std::int64_t anchor = 0; anchor < head.anchors; ++anchor) {
    const auto value = [&](std::int64_t i) { return value_of(head, output, anchor, i); };
    if (value(2) < value(0) || value(3) < value(1)) return false;
  }
  return true;
}

BoxAgreement& BoxAgreement::operator+=(const BoxAgreement& other) {
  matched += other.matched;
  in_float += other.in_float;
  quantized += other.quantized;
  return *this;
}

std::optional<double> BoxAgreement::percent() const {
  if (in_float + quantized == 0) return std::nullopt;
  return 200 * static_cast<double>(matched) / static_cast<double>(in_float + quantized);
}

BoxAgreement compare_boxes(const DetectionHead& head, Output in_float, Output quantized) {
  const std::vector<Box> expected = boxes_of(head, in_float);
  std::vector<Box> found = boxes_of(head, quantized);
  BoxAgreement agreement{0, std::ssize(expected), std::ssize(found)};
  for (const Box& box : expected) {
    const auto better = [&](const Box& a, const Box& b) {
      return overlap(box, a) < overlap(box, b);
    };
    const auto end = std::partition(found.begin(), found.end(),
                                    [&](const Box& other) { return other.label == box.label; });
    const auto nearest = std::max_element(found.begin(), end, better);
    if (nearest == end || overlap(box, *nearest) < kSameBox) continue;
    ++agreement.matched;
    found.erase(nearest);
  }
  return agreement;
}

}  // namespace steelyard
