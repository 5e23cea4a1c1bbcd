#include "steelyard/import/onnx/newer_nodes.h"

#include <onnx.pb.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/onnx/onnx_tensors.h"

namespace steelyard::imports {
namespace {

using Attribute = onnx::AttributeProto;
using Node = onnx::NodeProto;

// A node that is rewritten, and what is written beside it.
class Rewriting {
 public:
  Rewriting(Node& old, onnx::GraphProto& graph) : node(old), graph_(graph) {}

  Node& node;
  std::vector<Node> before = {}, behind = {};

  std::optional<Attribute> take(const std::string& name) {
    auto& list = *node.mutable_attribute();
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& a) { return a.name() == name; });
    if (found == list.end()) return std::nullopt;
    Attribute attribute = *found;
    list.erase(found);
    return attribute;
  }
  // The attribute as input `at`; what is between is absent.
  void move_integers(const std::string& name, int at) {
    const auto attribute = take(name);
    if (!attribute) return;
    const bool one = attribute->type() == Attribute::INT;
    set_input(at, integers(one ? std::vector<std::int64_t>{attribute->i()}
                               : std::vector<std::int64_t>(attribute->ints().begin(),
                                                           attribute->ints().end()),
                           name));
  }
  void move_float(const std::string& name, int at) {
    const auto attribute = take(name);
    if (attribute) set_input(at, floats({attribute->f()}, name, /*scalar=*/true));
  }
  void set_input(int at, const std::string& value) {
    while (node.input_size() <= at) node.add_input("");
    node.set_input(at, value);
  }
  void set_text(const std::string& name, const std::string& value) {
    Attribute& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(Attribute::STRING);
    attribute.set_s(value);
  }
  void set_integer(Node& of, const std::string& name, std::int64_t value) const {
    Attribute& attribute = *of.add_attribute();
    attribute.set_name(name);
    attribute.set_type(Attribute::INT);
    attribute.set_i(value);
  }
  std::string integers(const std::vector<std::int64_t>& values, const std::string& what) {
    onnx::TensorProto& tensor = added(what, onnx::TensorProto::INT64);
    tensor.add_dims(std::ssize(values));
    tensor.mutable_int64_data()->Add(values.begin(), values.end());
    return tensor.name();
  }
  std::string floats(const std::vector<float>& values, const std::string& what, bool scalar) {
    onnx::TensorProto& tensor = added(what, onnx::TensorProto::FLOAT);
    if (!scalar) tensor.add_dims(std::ssize(values));
    tensor.mutable_float_data()->Add(values.begin(), values.end());
    return tensor.name();
  }
  std::string inner(const std::string& what) const { return node.output(0) + "/" + what; }

 private:
  onnx::TensorProto& added(const std::string& what, onnx::TensorProto::DataType type) {
    onnx::TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(inner(what));
    tensor.set_data_type(type);
    return tensor;
  }

  onnx::GraphProto& graph_;
};

void axes_as_input(Rewriting& to) { to.move_integers("axes", 1); }

// Before set 13 the dimensions from `axis` on were one.
void softmax_of_rows(Rewriting& to) {
  const auto axis = to.take("axis");
  const std::int64_t first = axis ? axis->i() : 1;
  to.set_integer(to.node, "axis", -1);
  if (first == -1) return;
  const std::string input = to.node.input(0), output = to.node.output(0);
  const auto add = [&](std::vector<Node>& list, const char* op,
                       const std::vector<std::string>& inputs, const std::string& made) -> Node& {
    Node& added = list.emplace_back();
    added.set_op_type(op);
    for (const std::string& name : inputs) added.add_input(name);
    added.add_output(made);
    return added;
  };
  add(to.before, "Shape", {input}, to.inner("shape"));
  to.set_integer(add(to.before, "Flatten", {input}, to.inner("rows")), "axis", first);
  add(to.behind, "Reshape", {to.inner("chances"), to.inner("shape")}, output);
  const std::string rows = to.inner("rows"), chances = to.inner("chances");
  to.node.set_input(0, rows);
  to.node.set_output(0, chances);
}

void resize_of(Rewriting& to, const std::string& scales) {
  to.node.set_op_type("Resize");
  to.set_input(2, scales);
  to.node.set_input(1, "");
  to.set_text("coordinate_transformation_mode", "asymmetric");
  to.set_text("nearest_mode", "floor");
}

struct Change {
  int since;  // the set that has the new form
  void (*rewrite)(Rewriting& to);
};

// By operation, each with its changes in order. Nodes of other operations read the same in newer
// sets.
const std::multimap<std::string, Change>& changes() {
  static const std::multimap<std::string, Change> kChanges = [] {
    std::multimap<std::string, Change> list{
        {"Clip",
         {11,
          [](Rewriting& to) {
            to.move_float("min", 1);
            to.move_float("max", 2);
          }}},
        {"DFT",
         {20,
          [](Rewriting& to) {
            const auto axis = to.take("axis");
            const std::string value = to.integers({axis ? axis->i() : 1}, "axis");
            Node& scalar = to.before.emplace_back();
            scalar.set_op_type("Squeeze");
            scalar.add_input(value);
            scalar.add_output(to.inner("axis_scalar"));
            to.set_input(2, scalar.output(0));
          }}},
        {"Dropout", {12, [](Rewriting& to) { to.take("ratio"); }}},
        {"GridSample",
         {20,
          [](Rewriting& to) {
            const auto mode = to.take("mode");
            const std::string old = mode ? mode->s() : "bilinear";
            to.set_text("mode", old == "bilinear" ? "linear" : old == "bicubic" ? "cubic" : old);
          }}},
        {"Pad",
         {11,
          [](Rewriting& to) {
            to.move_integers("pads", 1);
            to.move_float("value", 2);
          }}},
        {"Resize", {11, [](Rewriting& to) { resize_of(to, std::string(to.node.input(1))); }}},
        {"RoiAlign",
         {16,
          [](Rewriting& to) {
            to.set_text("coordinate_transformation_mode", "output_half_pixel");
          }}},
        {"Scatter", {11, [](Rewriting& to) { to.node.set_op_type("ScatterElements"); }}},
        {"Slice",
         {10,
          [](Rewriting& to) {
            to.move_integers("starts", 1);
            to.move_integers("ends", 2);
            to.move_integers("axes", 3);
          }}},
        {"Split", {13, [](Rewriting& to) { to.move_integers("split", 1); }}},
        {"Split",
         {18,
          [](Rewriting& to) {
            if (to.node.input_size() > 1) return;
            to.set_integer(to.node, "num_outputs", to.node.output_size());
          }}},
        {"TopK", {10, [](Rewriting& to) { to.move_integers("k", 1); }}},
        {"Upsample",
         {10,
          [](Rewriting& to) {
            const auto scales = to.take("scales");
            resize_of(to, scales ? to.floats({scales->floats().begin(), scales->floats().end()},
                                             "scales", /*scalar=*/false)
                                 : std::string(to.node.input(1)));
          }}},
    };
    for (const char* op : {"ReduceSum", "Squeeze", "Unsqueeze"}) {
      list.emplace(op, Change{13, axes_as_input});
    }
    for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                           "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"}) {
      list.emplace(op, Change{18, axes_as_input});
    }
    for (const char* op : {"Hardmax", "LogSoftmax", "Softmax"}) {
      list.emplace(op, Change{13, softmax_of_rows});
    }
    return list;
  }();
  return kChanges;
}

// Operations whose older form cannot be told in the newer one's words, and the set that changed
// them.
const std::map<std::string, int>& refused() {
  static const std::map<std::string, int> kRefused{
      {"BatchNormalization", 9}, {"GroupNormalization", 21}, {"Scan", 9}};
  return kRefused;
}

bool changed(int from, int since, int to) { return from < since && since <= to; }

}  // namespace

void rewrite_nodes(onnx::GraphProto& graph, int from, int to, const std::string& file) {
  if (from >= to) return;
  google::protobuf::RepeatedPtrField<Node> nodes;
  nodes.Swap(graph.mutable_node());
  for (Node& node : nodes) {
    for (Attribute& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) rewrite_nodes(*attribute.mutable_g(), from, to, file);
    }
    std::vector<Node> before, behind;
    if (node.domain().empty() || node.domain() == "ai.onnx") {
      const std::string op = node.op_type();
      const auto old = refused().find(op);
      if (old != refused().end() && changed(from, old->second, to)) {
        throw InputError(file + ": node " + in_quotes(node.name()) + " (" + op +
                         ") of operation set " + std::to_string(from) + " has no form in set " +
                         std::to_string(to) + ", which the integer part needs");
      }
      Rewriting rewriting(node, graph);
      const auto [begin, end] = changes().equal_range(op);
      for (auto change = begin; change != end; ++change) {
        if (changed(from, change->second.since, to)) change->second.rewrite(rewriting);
      }
      before = std::move(rewriting.before);
      behind = std::move(rewriting.behind);
    }
    for (Node& added : before) *graph.add_node() = std::move(added);
    *graph.add_node() = std::move(node);
    for (Node& added : behind) *graph.add_node() = std::move(added);
  }
}

}  // namespace steelyard::imports
