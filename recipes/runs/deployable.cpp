#include "steelyard/recipes/runs/deployable.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "steelyard/export/formats.h"
#include "steelyard/export/trace.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/qat/model/faults.h"

namespace steelyard {
namespace {

using Quantizers = std::vector<qat::NamedQuantizer>;

std::vector<deploy::PartPort> ports_of(const std::vector<imports::PartSpec>& parts) {
  std::vector<deploy::PartPort> ports;
  for (const imports::PartSpec& part : parts) {
    ports.push_back({port_of(part.port), part.first, part.shape});
  }
  return ports;
}

// The graph of a sample of that shape that gives the quantizers no fault.
deploy::Graph traced(const Deployable& model, const Quantizers& quantizers, const Shape& batch) {
  std::optional<std::string> first;
  for (const float value : kTrialValues) {
    const Tensor one = Tensor::full(batch, value);
    deploy::Graph graph = deploy::trace(*model.deployed, one, model.name).graph;
    const auto fault = qat::take_fault(quantizers);
    if (!fault) {
      deploy::require_constants(graph, *model.deployed, one);
      qat::take_fault(quantizers);  // of samples that nobody asked for
      return graph;
    }
    if (!first) first = fault;
  }
  throw InputError("export: " + *first);
}

// A batch whose free sizes are that much larger, but at most twice as large.
Shape enlarged(Shape batch, const imports::PortSpec& port, std::int64_t more) {
  for (const auto& [axis, name] : port.free) {
    std::int64_t& size = batch.at(static_cast<std::size_t>(axis) + 1);
    size += std::min(size, more);
  }
  return batch;
}

// Graphs for samples of other sizes, where the network leaves them free: twice as large, and as
// little larger as the network takes, so that what is rounded shows.
std::vector<deploy::Graph> resized(const Deployable& model, const Quantizers& quantizers) {
  if (model.network == nullptr || model.network->input.free.empty() || !model.free_sizes) return {};
  const imports::PortSpec& input = model.network->input;
  const Shape twice = enlarged(model.batch, input, std::numeric_limits<std::int64_t>::max());
  std::vector<deploy::Graph> graphs;
  try {
    graphs.push_back(traced(model, quantizers, twice));
  } catch (const qat::NeverObserved&) {  // of values that only larger samples have
    return {};
  }
  for (std::int64_t more = 1;; more *= 2) {
    const Shape larger = enlarged(model.batch, input, more);
    if (larger == twice) return graphs;
    try {
      graphs.push_back(traced(model, quantizers, larger));
      return graphs;
    } catch (const std::invalid_argument&) {  // no size of this network: what is joined differs
      qat::take_fault(quantizers);
    }
  }
}

}  // namespace

std::optional<std::string> yet_to_change(const qat::NamedQuantizer& entry) {
  const std::string subject = "the quantizer " + entry.name;
  if (!entry.quantizer->quantizing()) {
    return subject + " is off in this checkpoint: schedule.fake_quant starts later";
  }
  const int bits = entry.quantizer->scheme().bits;
  const int planned = entry.quantizer->config().scheme.bits;
  if (bits == planned) return std::nullopt;
  return subject + " has " + std::to_string(bits) + " bits in this checkpoint, " +
         std::to_string(planned) + " in the plan: schedule.bits ends later";
}

deploy::Graph traced_graph(const Deployable& model,
                           const std::function<void(deploy::Graph&)>& describe) {
  const Quantizers quantizers = qat::named_quantizers(model.trained);
  for (const qat::NamedQuantizer& entry : quantizers) {
    if (const auto difference = yet_to_change(entry)) throw InputError("export: " + *difference);
    entry.quantizer->take_faults();
  }
  try {
    deploy::Graph graph = traced(model, quantizers, model.batch);
    describe(graph);
    for (deploy::Graph& larger : resized(model, quantizers)) {
      describe(larger);
      graph.resized.push_back(std::make_shared<deploy::Graph>(std::move(larger)));
    }
    return graph;
  } catch (const qat::NeverObserved& error) {  // of values that exist: others need no range
    throw InputError("export: " + qat::never_observed_text(model.trained, error));
  }
}

deploy::Port port_of(const imports::PortSpec& spec) {
  const DType dtype = spec.type == "int32"   ? DType::kI32
                      : spec.type == "int64" ? DType::kI64
                      : spec.type == "bool"  ? DType::kBool
                                             : DType::kF32;
  return {spec.name, spec.batch, spec.channels_last, dtype, spec.free, spec.batch_axis};
}

void describe_ports(deploy::Graph& graph, const imports::GraphSpec& network) {
  graph.input_port = port_of(network.input);
  graph.output_port = port_of(network.output);
  graph.input_ports = input_ports_of(network);
  graph.output_ports = output_ports_of(network);
  std::int64_t first = 0;  // in this graph, whose samples may have other sizes
  for (std::size_t i = 0; i < graph.output_ports.size(); ++i) {
    deploy::PartPort& part = graph.output_ports[i];
    part.first = first;
    part.shape = graph.values[graph.nodes.back().inputs.at(i)].shape;
    first += shape_size(part.shape);
  }
}

std::vector<deploy::PartPort> input_ports_of(const imports::GraphSpec& network) {
  return ports_of(network.parts);
}

std::vector<deploy::PartPort> output_ports_of(const imports::GraphSpec& network) {
  return ports_of(network.output_parts);
}

std::optional<std::string> refusal_of(const deploy::Graph& graph,
                                      const std::vector<std::string>& formats) {
  for (const std::string& name : formats) {
    const deploy::ExportFormat& format = deploy::export_format(name);
    const std::string why = format.refusal(graph);
    if (!why.empty()) return "export: " + std::string(format.title) + ": " + why;
  }
  return std::nullopt;
}

}  // namespace steelyard
