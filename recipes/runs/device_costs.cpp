#include "steelyard/recipes/runs/device_costs.h"

#include <fmt/format.h>

#include <array>

#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/c/c_program.h"
#include "steelyard/export/stream.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/runs/graph_costs.h"

namespace steelyard {

std::optional<DeviceCosts> device_costs(const deploy::Graph& graph,
                                        const std::optional<deploy::StreamOptions>& stream) {
  if (!deploy::c_program_refusal(graph).empty()) return std::nullopt;
  const deploy::CProgramSize size = deploy::c_program(graph, stream).size;
  const deploy::Graph& of_call = stream ? deploy::stream_of(graph, *stream).graph : graph;
  return DeviceCosts{.flash_bytes = size.most_constant_bytes,
                     .ram_bytes = size.arena_bytes,
                     .state_bytes = size.state_bytes,
                     .macs = costs_of(of_call).macs,
                     .frames = stream ? stream->frames : 0};
}

std::int64_t flash_bytes_of_layer(std::int64_t weights, std::int64_t outputs, int bits) {
  const int per_byte = deploy::c_codes_per_byte(bits);
  return deploy::c_array_bytes((weights + per_byte - 1) / per_byte) + 8 * outputs +
         deploy::c_array_bytes(outputs);
}

std::int64_t flash_bytes_beside_layers(const deploy::Graph& graph,
                                       const std::optional<deploy::StreamOptions>& stream) {
  const std::optional<DeviceCosts> costs = device_costs(graph, stream);
  if (!costs) throw InputError("no program in C: " + deploy::c_program_refusal(graph));
  std::int64_t rest = costs->flash_bytes;
  for (const deploy::Node& node : graph.nodes) {
    if (!node.weights || deploy::shares_weights(graph, node)) continue;
    for (const auto* weights : {&node.weights, &node.recurrent}) {
      if (!*weights) continue;
      const Tensor& weight = (*weights)->weight;
      rest -= flash_bytes_of_layer(weight.size(), weight.dim(0), (*weights)->bits);
    }
  }
  return rest;
}

std::string text_of(const DeviceCosts& costs) {
  const std::string state =
      costs.frames > 0 ? fmt::format(", {} of them kept between calls", costs.state_bytes) : "";
  const std::string unit =
      costs.frames > 0 ? fmt::format("call of {} frames", costs.frames) : "sample";
  return fmt::format(
      "at most {} bytes of constants, {} bytes of RAM for values{}, {} multiplications a {}",
      costs.flash_bytes, costs.ram_bytes, state, costs.macs, unit);
}

std::optional<std::string> exceeded_limits(const DeviceCosts& costs, const DeviceLimits& limits) {
  struct Limit {
    const char* name;
    std::optional<std::int64_t> most;
    std::int64_t actual;
    const char* unit;
  };
  const std::array all{
      Limit{"flash", limits.flash, costs.flash_bytes, "bytes of constants"},
      Limit{"ram", limits.ram, costs.ram_bytes, "bytes for values"},
      Limit{"macs", limits.macs, costs.macs,
            costs.frames > 0 ? "multiplications a call" : "multiplications a sample"},
  };
  std::string exceeded;
  for (const Limit& limit : all) {
    if (!limit.most || limit.actual <= *limit.most) continue;
    exceeded += fmt::format("{}export.limits.{}: expected at most {} {}, got {}",
                            exceeded.empty() ? "" : "; ", limit.name, *limit.most, limit.unit,
                            limit.actual);
  }
  if (exceeded.empty()) return std::nullopt;
  return exceeded;
}

}  // namespace steelyard
