#include "steelyard/import/free_sizes.h"

#include <algorithm>
#include <iterator>

#include "steelyard/framework/error.h"
#include "steelyard/framework/printable.h"
#include "steelyard/import/inputs.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {
namespace {

// The dimension of a file's port that a dimension of a sample is, images being [H, W, C] here.
const OnnxDim& dim_of(const OnnxPort& port, const PortSpec& spec, std::size_t rank,
                      std::size_t axis) {
  const bool turned = rank == 3 && !spec.channels_last;
  return port.dims.at(1 + (turned ? (axis + 1) % rank : axis));
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

bool leaves_size_free(const OnnxPort& port) {
  return std::any_of(port.dims.begin() + 1, port.dims.end(),
                     [](const OnnxDim& dim) { return !dim.size; });
}

bool same_values(const NamedTensor& a, const NamedTensor& b) {
  if (a.name != b.name || a.tensor.shape() != b.tensor.shape()) return false;
  const auto x = a.tensor.span<float>(), y = b.tensor.span<float>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// The module in which two translations differ; "" where they do not.
std::string first_difference(const Imported& a, const Imported& b) {
  const auto& nodes = a.graph.nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i < b.graph.nodes.size() && nodes[i] == b.graph.nodes[i]) continue;
    return nodes[i].name + " (" + nodes[i].type + ")";
  }
  if (b.graph.nodes.size() > nodes.size()) return b.graph.nodes[nodes.size()].name;
  const bool same = std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(),
                               b.weights.end(), same_values);
  if (same) return "";
  const auto [own, other] = std::mismatch(a.weights.begin(), a.weights.end(), b.weights.begin(),
                                          b.weights.end(), same_values);
  return own == a.weights.end() ? other->name : own->name;
}

// The dimensions of the output that follow the input's.
void free_output(Imported& imported, const Imported& other, const OnnxPort& port) {
  const Shape& shape = imported.graph.output_sample;
  const Shape& changed = other.graph.output_sample;
  for (std::size_t axis = 0; axis < shape.size() && axis < changed.size(); ++axis) {
    if (shape[axis] == changed[axis]) continue;
    std::string name;
    if (port.dims.size() == shape.size() + 1) {
      const OnnxDim& dim = dim_of(port, imported.graph.output, shape.size(), axis);
      if (!dim.size) name = own_name(port, dim, imported.graph.output.batch);
    }
    imported.graph.output.free[static_cast<std::int64_t>(axis)] = name;
  }
}

// The translation for the size that is nearest to that of `sample` and makes a network, from the
// next one to twice the size; with any of these a rounded size shows. Throws as translate() where
// none does.
Imported nearest(const Shape& sample, std::size_t axis,
                 const std::function<Imported(const Shape&)>& translated) {
  for (std::int64_t more = 1; more < sample[axis]; more *= 2) {
    Shape larger = sample;
    larger[axis] += more;
    try {
      return translated(larger);
    } catch (const UnsupportedGraph&) {  // no network, as one of joined halves is of odd sizes
    }
  }
  Shape twice = sample;
  twice[axis] *= 2;
  return translated(twice);
}

}  // namespace

bool has_free_sizes(const OnnxModel& model) {
  return model.inputs.size() == 1 && leaves_size_free(model.inputs[0]);
}

void note_fixed_inputs(Imported& imported, const OnnxModel& model) {
  if (model.inputs.size() < 2) return;
  std::vector<OnnxPort> free;
  std::copy_if(model.inputs.begin(), model.inputs.end(), std::back_inserter(free),
               leaves_size_free);
  if (free.empty()) return;
  imported.notes.push_back("sizes of " + printable(names_of(free)) + " are free in " +
                           printable(model.source) +
                           ", but fixed in exports: the model has several inputs");
}

void find_free_sizes(Imported& imported, const OnnxModel& model,
                     const std::function<Imported(const Shape&)>& translated) {
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
      if (reader.empty()) reader = first_difference(imported, nearest(sample, axis, translated));
      if (reader.empty()) {
        free_output(imported, other, model.outputs[0]);
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
