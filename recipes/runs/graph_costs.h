// What a deployed network costs.
#pragma once

#include <cstdint>

#include "steelyard/runtime/graph.h"

namespace steelyard {

// For one sample.
struct GraphCosts {
  std::int64_t macs = 0;            // multiplications of layers and of products of two values
  std::int64_t integer_macs = 0;    // of them, on integers
  std::int64_t bit_operations = 0;  // each times the widths of its two factors; 32 of a float
  std::int64_t bytes = 0;           // of parameters

  // The part of the multiplications that is on integers, from 0 to 1; 1 without any.
  double integer_share() const;
  bool operator==(const GraphCosts&) const = default;
};

GraphCosts costs_of(const deploy::Graph& graph);

}  // namespace steelyard
