// What the program in C of a model takes of a microcontroller, and what a recipe allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "steelyard/export/stream_options.h"
#include "steelyard/recipes/schema/recipe.h"
#include "steelyard/runtime/graph.h"

namespace steelyard {

struct DeviceCosts {
  std::int64_t flash_bytes = 0;  // constants at most: weights, biases, factors, tables, geometry
  std::int64_t ram_bytes = 0;    // the arena of the values
  std::int64_t state_bytes = 0;  // of them, kept from call to call
  std::int64_t macs = 0;         // multiplications for a sample, or for a call
  std::int64_t frames = 0;       // of a call; 0 where calls have whole samples
};

// Nothing of a graph that has no such program. Throws InputError as stream_of() does.
std::optional<DeviceCosts> device_costs(const deploy::Graph& graph,
                                        const std::optional<deploy::StreamOptions>& stream = {});

// Of flash_bytes those of a linear map: weights of `bits` bits, and 9 bytes of each output, arrays
// of bytes rounded up to a multiple of 4.
std::int64_t flash_bytes_of_layer(std::int64_t weights, std::int64_t outputs, int bits);
// The others of the graph, whatever the widths of its weights. Throws InputError where it has no
// such program.
std::int64_t flash_bytes_beside_layers(const deploy::Graph& graph,
                                       const std::optional<deploy::StreamOptions>& stream = {});

// "at most 12345 bytes of constants, ..."
std::string text_of(const DeviceCosts& costs);

// The limits that the costs exceed, with both numbers; nothing where none is.
std::optional<std::string> exceeded_limits(const DeviceCosts& costs, const DeviceLimits& limits);

}  // namespace steelyard
