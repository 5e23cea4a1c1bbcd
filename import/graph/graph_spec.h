// A network as data: its modules, their options and their connections, without weights. It is the
// result of an import and is stored in checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/layers/stored_options.h"

namespace steelyard::imports {

using Options = StoredOptions;

// A module. The names of inputs are those of nodes before it, or "input".
struct NodeSpec {
  std::string name;
  std::string type;  // of layer_catalogue()
  std::vector<std::string> inputs;
  Options options = {};
  // The node before it, of the same type and options, whose parameters and buffers it uses as its
  // own; "" where it has its own. An EmbeddingHead has the table of an Embedding.
  std::string weights_of = {};
  bool operator==(const NodeSpec&) const = default;
};

// The name and layout of the file's input or output.
struct PortSpec {
  std::string name;
  std::string batch = "N";     // what its dimension of the batch is called, which is free
  bool channels_last = false;  // an image is [N, H, W, C] there too; else [N, C, H, W]
  std::string type = "float";  // or whole numbers, such as indices: "int32", "int64", "bool"
  // The dimensions of a sample that exports leave free, and what they are called, or "".
  std::map<std::int64_t, std::string> free = {};
  std::int64_t batch_axis = 0;  // which of the file's dimensions the batch is
  bool whole() const { return type != "float"; }
  bool operator==(const PortSpec&) const = default;
};

// One of several inputs of the file, or one whose shape is not that of a sample, or one of several
// outputs: some of a sample's values, from `first` on, under a shape of their own (images as
// [H, W, C]). A node of the type InputPart gives an input, and one of the type OutputParts, the
// last one, has all outputs as its inputs.
struct PartSpec {
  PortSpec port;
  std::int64_t first = 0;
  Shape shape;
  bool operator==(const PartSpec&) const = default;
};

inline constexpr const char* kOutputParts = "OutputParts";
inline constexpr const char* kEmbeddingHead = "EmbeddingHead";

struct GraphSpec {
  PortSpec input;                           // where there are no parts
  PortSpec output;                          // where there are no output parts
  std::vector<PartSpec> parts = {};         // in the file's order
  std::vector<PartSpec> output_parts = {};  // likewise
  Shape sample;                             // without the batch, images as [H, W, C]
  Shape output_sample;                      // of the output, likewise; of all outputs in a row
  std::vector<NodeSpec> nodes;
  // An activation after the last node that losses of logits contain: "Softmax", "LogSoftmax". It
  // is left out of what such a loss trains, and part of what is exported.
  std::string head = {};

  // The file's inputs and outputs.
  std::vector<PortSpec> input_ports() const;
  std::vector<PortSpec> output_ports() const;
  // Identifies the graph: the sha256 of text_of().
  std::string digest() const;
};

// The index of the last node that computes something: what is behind it only moves its values to
// other shapes and orders, and nothing else reads them.
std::size_t last_computing(const GraphSpec& graph);
// How many inputs of nodes that value is.
std::int64_t readers_of(const GraphSpec& graph, const std::string& name);
// Whether modules of that type give other places to the same values.
bool moves_values(const std::string& type);
// The activation that outputs have last: the head or the type of the last node that computes.
std::string output_activation(const GraphSpec& graph);
// How many modules with parameters several nodes use, and how many nodes: "9 modules are used at 62
// places"; "" where there are none.
std::string shared_text(const GraphSpec& graph);
// The shape of the last node's value, without the batch. Throws std::invalid_argument where the
// graph does not fit together.
Shape output_shape(const GraphSpec& graph);

// JSON on one line; equal graphs have equal texts.
std::string text_of(const GraphSpec& graph);
// Back. Throws InputError that begins with `source`.
GraphSpec graph_from(std::string_view text, const std::string& source);

// The shape of the output, or the names and shapes of several: "boxes [8, 4], scores [3]".
std::string outputs_text(const GraphSpec& graph);

// The modules with weights that are not set yet. Throws InputError that begins with `source` where
// the graph does not fit together.
std::shared_ptr<Module> build(const GraphSpec& graph, bool with_head, const std::string& source);

// The activation that `head` names.
std::shared_ptr<Module> build_head(const GraphSpec& graph);

// A line for each node: name, module, the nodes that it reads.
std::string to_string(const GraphSpec& graph);

}  // namespace steelyard::imports
