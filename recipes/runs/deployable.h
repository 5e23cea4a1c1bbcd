// A model as its deployed graph, wherever it was trained: by a run or in a loop of somebody else's.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/import/graph/graph_spec.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/runtime/graph.h"

namespace steelyard {

// Samples that are tried in turn: a network may divide by what it reads.
inline constexpr std::array kTrialValues = {0.0F, 1.0F, -0.5F};

// What a graph is traced from, on the CPU.
struct Deployable {
  Module& trained;                              // whose quantizers are in their final form
  std::shared_ptr<Module> deployed;             // the same, with what comes after it in deployment
  const imports::GraphSpec* network = nullptr;  // that it was imported from
  Shape batch = {};                             // one sample
  std::string name = {};
  bool free_sizes =
      true;  // whether samples may have other sizes where the network leaves them free
};

// What the schedule has yet to change; nothing where the quantizer is as planned.
std::optional<std::string> yet_to_change(const qat::NamedQuantizer& entry);

// The graph, `describe` called for it and for those of other sizes. Throws InputError for
// quantizers that are off, have another width than planned or, where a pass comes to them, never
// observed, for non-finite weights, and for what has no deployed form.
deploy::Graph traced_graph(const Deployable& model,
                           const std::function<void(deploy::Graph&)>& describe);

deploy::Port port_of(const imports::PortSpec& spec);
// The network's inputs and outputs, as files have them.
void describe_ports(deploy::Graph& graph, const imports::GraphSpec& network);
// Empty where the network reads samples as one input.
std::vector<deploy::PartPort> input_ports_of(const imports::GraphSpec& network);
// Empty where the network has one output.
std::vector<deploy::PartPort> output_ports_of(const imports::GraphSpec& network);

// Why the first of the formats that has no form of the graph has none.
std::optional<std::string> refusal_of(const deploy::Graph& graph,
                                      const std::vector<std::string>& formats);

}  // namespace steelyard
