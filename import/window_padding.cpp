#include "steelyard/import/window_padding.h"

#include <algorithm>
#include <limits>

#include "steelyard/import/constants.h"

namespace steelyard::imports {
namespace {

const Constant* constant_at(const OnnxNode& node, std::size_t input,
                            const std::map<std::string, Constant>& constants) {
  const auto found = constants.find(node.input(input));
  return found == constants.end() ? nullptr : &found->second;
}

// Before each dimension, then after each; empty where they are not known or do not belong to all
// dimensions.
std::vector<std::int64_t> pads_of(const OnnxNode& pad,
                                  const std::map<std::string, Constant>& constants) {
  if (pad.text("mode", "constant") != "constant" || !pad.input(3).empty()) return {};
  if (pad.input(1).empty()) return pad.integers("pads");
  std::vector<std::int64_t> pads;
  const Constant* given = constant_at(pad, 1, constants);
  if (given == nullptr || given->floating) return {};
  for (const Extent& extent : given->integers) {
    if (extent.of_batch) return {};
    pads.push_back(extent.value);
  }
  return pads;
}

std::optional<double> value_of(const OnnxNode& pad,
                               const std::map<std::string, Constant>& constants) {
  if (pad.input(2).empty()) return pad.real("value", 0);
  const Constant* given = constant_at(pad, 2, constants);
  return given == nullptr ? std::nullopt : scalar_of(*given);
}

bool all_zero(const std::vector<std::int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](std::int64_t v) { return v == 0; });
}

bool pads_by_itself(const OnnxNode& window) {
  const std::string automatic = window.text("auto_pad", "NOTSET");
  return automatic == "NOTSET" || automatic == "VALID" || automatic.empty();
}

// Whether what the window reads beyond the edge may be that value.
bool takes(const OnnxNode& window, double value, const std::vector<std::int64_t>& own) {
  // A last window may begin in the pool's own padding, but not in what a Pad added.
  if (window.op != "Conv" && window.integer("ceil_mode", 0) != 0) return false;
  if (window.op == "MaxPool") return value <= std::numeric_limits<float>::lowest();
  if (value != 0) return false;
  return window.op == "Conv" || all_zero(own) || window.integer("count_include_pad", 0) != 0;
}

}  // namespace

std::optional<OnnxNode> with_padding(const OnnxNode& window, const OnnxNode& pad,
                                     const std::map<std::string, Constant>& constants) {
  const bool known = window.op == "Conv" || window.op == "AveragePool" || window.op == "MaxPool";
  if (!known || !window.domain.empty() || !pads_by_itself(window)) return std::nullopt;
  const std::vector<std::int64_t> pads = pads_of(pad, constants);
  const std::size_t rank = pads.size() / 2;
  if (rank < 3 || pads.size() % 2 != 0 || pads[0] != 0 || pads[1] != 0 || pads[rank] != 0 ||
      pads[rank + 1] != 0) {
    return std::nullopt;
  }
  std::vector<std::int64_t> sums = window.integers("pads");
  if (sums.empty() || window.text("auto_pad", "NOTSET") == "VALID") sums.assign(2 * (rank - 2), 0);
  const std::optional<double> value = value_of(pad, constants);
  if (sums.size() != 2 * (rank - 2) || !value || !takes(window, *value, sums)) return std::nullopt;
  const std::vector<std::int64_t> kernel = window.integers("kernel_shape");
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    std::int64_t& before = sums[i];
    std::int64_t& after = sums[i + rank - 2];
    const std::int64_t more_before = pads[i + 2], more_after = pads[i + 2 + rank];
    if (more_before < 0 || more_after < 0) return std::nullopt;
    if (__builtin_add_overflow(before, more_before, &before) ||
        __builtin_add_overflow(after, more_after, &after) ||
        before != after) {  // would be padded by a node of its own again
      return std::nullopt;
    }
    const bool pooled = window.op != "Conv";
    if (pooled && (i >= kernel.size() || before > kernel[i] / 2)) return std::nullopt;
  }
  OnnxNode joined = window;
  joined.inputs[0] = pad.input(0);
  joined.attributes["pads"] = sums;
  joined.attributes.erase("auto_pad");
  if (window.op == "AveragePool") joined.attributes["count_include_pad"] = std::int64_t{1};
  return joined;
}

}  // namespace steelyard::imports
