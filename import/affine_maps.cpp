#include "steelyard/import/affine_maps.h"

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

}  // namespace

void make_affine(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights) {
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
      const Line& first = before->second.line;
      map = {before->second.of,
             {line->slope * first.slope, line->slope * first.offset + line->offset}};
    }
    node.type = "Affine";
    node.inputs = {map.of};
    node.options = {{"slope", map.line.slope}, {"offset", map.line.offset}};
    weights.erase(found);
    maps.emplace(node.name, map);
  }
}

}  // namespace steelyard::imports
