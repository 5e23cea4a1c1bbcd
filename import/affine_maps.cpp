#include "steelyard/import/affine_maps.h"
#include "steelyard/framework/ops/elementwise/activations.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace steelyard::imports {
namespace {

struct Line {
  double slope = 1;
  double offset = 0;
};

std::optional<Line> line_of(const std::string& type, double number) {
  if (type == "AddConstant") return Line{1, number};
  if (type == "SubConstant") return Line{1, -number};
  if (type == "ConstantSub") return Line{-1, number};
  if (type == "MulConstant") return Line{number, 0};
  if (type == "DivConstant" && number != 0) return Line{1 / number, 0};
  return std::nullopt;
}

Line joined(const Line& first, const Line& second) {
  return {second.slope * first.slope, second.slope * first.offset + second.offset};
}

// Whether the first offset is so large beside what both compute that values lose digits in between,
// as in (x + 1.5 * 2^23) - 1.5 * 2^23, which rounds to whole numbers.
bool rounds(const Line& first, const Line& second, const Line& both) {
  constexpr double kMost = 1024;
  const double between = std::abs(second.slope * first.offset);
  return between > kMost * std::max(std::abs(both.slope), std::abs(both.offset));
}

}  // namespace

void make_code_grid(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights) {
  struct Map {
    std::string of;
    Line line;
  };
  std::map<std::string, Map> maps;  // by the node's name
  for (NodeSpec& node : graph.nodes) {
    const auto found = weights.find(node.name);
    const bool number = found != weights.end() && found->second.size() == 1 &&
                        found->second[0].name == node.name + ".value" &&
                        found->second[0].tensor.rank() == 0;
    const auto line = number ? line_of(node.type, double{found->second[0].tensor.data<float>()[0]})
                             : std::nullopt;
    if (!line) continue;
    Map map{node.inputs[0], *line};
    if (const auto before = maps.find(map.of); before != maps.end()) {
      const Line both = joined(before->second.line, *line);
      if (!rounds(before->second.line, *line, both)) map = {before->second.of, both};
    }
    node.type = "Affine";
    node.inputs = {map.of};
    node.options = stored_options(kernels::Ramp{map.line.slope, map.line.offset});
    weights.erase(found);
    maps.emplace(node.name, map);
  }
}

}  // namespace steelyard::imports
