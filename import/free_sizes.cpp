#include "steelyard/import/free_sizes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/file_order.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/inputs.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {
namespace {

// The dimension of a file's port that a dimension of a sample is, images being [H, W, C] here.
const OnnxDim& dim_of(const OnnxPort& port, const PortSpec& spec, std::size_t rank,
                      std::size_t axis) {
  const auto order = file_order(rank, spec.channels_last, spec.batch_axis);
  const auto found = std::find(order.begin(), order.end(), static_cast<std::int64_t>(axis) + 1);
  return port.dims.at(static_cast<std::size_t>(found - order.begin()));
}

// The free dimension's name, if no other one of the port has it, nor the batch, as exports call it:
// equal names say equal sizes.
std::string own_name(const OnnxPort& port, const OnnxDim& dim, const std::string& batch) {
  const auto same = std::count_if(port.dims.begin(), port.dims.end(),
                                  [&](const OnnxDim& other) { return other.name == dim.name; });
  return same == 1 && dim.name != batch ? dim.name : "";
}

std::string name_of(std::size_t axis, std::size_t rank) {
  if (rank == 3) return axis == 0 ? "height" : "width";
  return "dimension " + std::to_string(axis + 1);
}

bool leaves_size_free(const OnnxModel& model, const OnnxPort& port) {
  const std::vector<OnnxDim> dims = sample_dims(port, batch_axis(model, port));
  return std::any_of(dims.begin(), dims.end(), [](const OnnxDim& dim) { return !dim.size; });
}

bool same_values(const NamedTensor& a, const NamedTensor& b) {
  if (a.name != b.name || a.tensor.shape() != b.tensor.shape()) return false;
  const auto x = a.tensor.span<float>(), y = b.tensor.span<float>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

std::string node_text(const NodeSpec& node) { return node.name + " (" + node.type + ")"; }

// The module in which two translations differ; "" where they do not.
std::string first_difference(const Imported& a, const Imported& b) {
  const auto& nodes = a.graph.nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i >= b.graph.nodes.size()) return node_text(nodes[i]);
    const NodeSpec& other = b.graph.nodes[i];
    if (nodes[i] == other) continue;
    const bool both_have_it = std::any_of(
        nodes.begin(), nodes.end(), [&](const NodeSpec& node) { return node.name == other.name; });
    return node_text(both_have_it ? nodes[i] : other);
  }
  if (b.graph.nodes.size() > nodes.size()) return b.graph.nodes[nodes.size()].name;
  const bool same = std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(),
                               b.weights.end(), same_values);
  if (same) return "";
  const auto [own, other] = std::mismatch(a.weights.begin(), a.weights.end(), b.weights.begin(),
                                          b.weights.end(), same_values);
  return own == a.weights.end() ? other->name : own->name;
}

// The dimensions of an output that follow the input's, by its shapes for two sizes.
void free_output(PortSpec& output, const Shape& shape, const Shape& changed, const OnnxPort& port) {
  for (std::size_t axis = 0; axis < shape.size() && axis < changed.size(); ++axis) {
    if (shape[axis] == changed[axis]) continue;
    std::string name;
    if (port.dims.size() == shape.size() + 1) {
      const OnnxDim& dim = dim_of(port, output, shape.size(), axis);
      if (!dim.size) name = own_name(port, dim, output.batch);
    }
    output.free[static_cast<std::int64_t>(axis)] = name;
  }
}

void free_outputs(GraphSpec& graph, const GraphSpec& other, const OnnxModel& model) {
  if (graph.output_parts.empty()) {
    free_output(graph.output, graph.output_sample, other.output_sample, model.outputs[0]);
  }
  for (std::size_t i = 0; i < graph.output_parts.size(); ++i) {
    PartSpec& part = graph.output_parts[i];
    free_output(part.port, part.shape, other.output_parts.at(i).shape, model.outputs[i]);
  }
}

// The larger of a module's strides; 1 for what has none, or makes values larger.
std::int64_t stride_of(const NodeSpec& node) {
  const auto found = node.options.find("stride");
  if (found == node.options.end() || node.type.starts_with("ConvTranspose")) return 1;
  if (const auto* one = std::get_if<std::int64_t>(&found->second)) return *one;
  const auto* strides = std::get_if<std::vector<std::int64_t>>(&found->second);
  return strides == nullptr ? 1 : *std::max_element(strides->begin(), strides->end());
}

template <typename Is>
bool has_node(const OnnxModel& model, const Is& is) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), is);
}

// Whether the padding of a window may follow from what its stride leaves of the size.
bool pads_rests(const OnnxModel& model) {
  return has_node(model, [](const OnnxNode& node) {
    return node.integer("ceil_mode", 0) != 0 || node.text("auto_pad", "").starts_with("SAME");
  });
}

bool reads_sizes(const OnnxModel& model) {
  return has_node(model,
                  [](const OnnxNode& node) { return node.op == "Shape" || node.op == "Size"; });
}

// How much larger than the sample's a size is for which windows are left with other rests: one
// behind windows whose strides have the product 4 reads one row more for every 4 of the input.
// Where they pad them, all sizes up to the largest product, after which the rests come again, or
// some if those are too many. Throws UnsupportedGraph for a stride with too many rests.
std::set<std::int64_t> other_rests(const Imported& imported, const OnnxModel& model) {
  constexpr std::int64_t kMostRests = 64, kMostProduct = std::int64_t{1} << 16;
  const bool pads = pads_rests(model);
  if (!pads && !reads_sizes(model)) return {1};
  std::map<std::string, std::int64_t> products;  // of the strides up to a value
  std::set<std::int64_t> larger{1};
  std::int64_t rests = 2;
  for (const NodeSpec& node : imported.graph.nodes) {
    std::int64_t product = 1;
    for (const std::string& input : node.inputs) product = std::max(product, products[input]);
    const std::int64_t stride = stride_of(node);
    if (pads && (stride > kMostRests || product > kMostProduct / stride)) {
      throw UnsupportedGraph(model.source, {{node.name, node.type, "its stride is too large"}});
    }
    products[node.name] = std::min(product * stride, kMostProduct);
    larger.insert(products[node.name]);
    rests = std::max(rests, stride);
  }
  if (!pads) return larger;
  const std::set<std::int64_t> all_products = larger;
  for (std::int64_t more = 1; more <= std::min(*all_products.rbegin(), kMostRests); ++more) {
    larger.insert(more);
  }
  for (const std::int64_t product : all_products) {
    for (std::int64_t rest = 1; rest < rests; ++rest) larger.insert(product * rest);
  }
  return larger;
}

// The module that differs in a translation for another size of the axis, "" where none does.
// Nothing where that size makes no network, as halves of an odd one that are joined.
std::optional<std::string> difference_at(const Imported& imported, std::size_t axis,
                                         std::int64_t size, const Translate& translated) {
  Shape other = imported.graph.sample;
  other[axis] = size;
  try {
    return first_difference(imported, translated(other));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// The module that depends on the size of the axis by its rests, or by a bound that the file
// computes from shapes and only larger sizes reach; "" where none does.
std::string depends_on(const Imported& imported, std::size_t axis, const OnnxModel& model,
                       const Translate& translated) {
  const std::int64_t size = imported.graph.sample[axis];
  for (const std::int64_t more : other_rests(imported, model)) {
    const auto reader = difference_at(imported, axis, size + more, translated);
    if (reader.value_or("") != "") return *reader;
  }
  constexpr std::int64_t kMostTimes = 1 << 12;
  for (std::int64_t times = 4; reads_sizes(model) && times <= kMostTimes; times *= 4) {
    const auto reader = difference_at(imported, axis, size * times, translated);
    if (reader != "") return reader.value_or("");
  }
  return "";
}

}  // namespace

bool has_free_sizes(const OnnxModel& model) {
  return model.inputs.size() == 1 && leaves_size_free(model, model.inputs[0]);
}

void note_fixed_inputs(Imported& imported, const OnnxModel& model) {
  if (model.inputs.size() < 2) return;
  std::vector<OnnxPort> free;
  std::copy_if(model.inputs.begin(), model.inputs.end(), std::back_inserter(free),
               [&](const OnnxPort& port) { return leaves_size_free(model, port); });
  if (free.empty()) return;
  imported.notes.push_back("sizes of " + printable(names_of(free)) + " are free in " +
                           printable(model.source) +
                           ", but fixed in exports: the model has several inputs");
}

void find_free_sizes(Imported& imported, const OnnxModel& model, const Translate& translated) {
  const Shape& sample = imported.graph.sample;
  if (!has_free_sizes(model) || !imported.graph.parts.empty()) return;
  const OnnxPort& port = model.inputs[0];
  PortSpec& input = imported.graph.input;
  const std::size_t spatial = sample.size() == 3 ? 2 : sample.size();
  for (std::size_t axis = 0; axis < spatial; ++axis) {
    const OnnxDim& dim = dim_of(port, input, sample.size(), axis);
    if (dim.size) continue;
    Shape twice = sample;
    twice[axis] *= 2;
    std::string reader;
    try {
      const Imported other = translated(twice);
      reader = first_difference(imported, other);
      if (reader.empty()) reader = depends_on(imported, axis, model, translated);
      if (reader.empty()) {
        free_outputs(imported.graph, other.graph, model);
        input.free[static_cast<std::int64_t>(axis)] = own_name(port, dim, input.batch);
        continue;
      }
    } catch (const UnsupportedGraph& error) {  // at that size the file is no network
      reader = printable(error.nodes().front().node) + " (" + error.nodes().front().op + ")";
    } catch (const InputError&) {
      reader = "the output";
    }
    imported.notes.push_back("the " + name_of(axis, sample.size()) + " of '" +
                             printable(port.name) + "' is free in " + printable(model.source) +
                             ", but fixed in exports: on it depends " + reader);
  }
}

}  // namespace steelyard::imports
