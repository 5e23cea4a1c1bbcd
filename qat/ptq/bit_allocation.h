// The choice of a bit width for each layer with the least total error within a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace steelyard::qat {

// One width of one layer: what it costs (bits, bytes, bit operations) and the error it brings.
struct WidthChoice {
  std::int64_t cost = 0;  // >= 0
  double error = 0;       // finite
};

struct Allocation {
  std::vector<std::size_t> choice;  // per layer: index into its choices
  std::int64_t cost = 0;
  double error = 0;
};

// One choice for every layer such that the sum of the costs is at most `budget` and the sum of the
// errors is least; of several such allocations the cheapest. Nothing if even the cheapest choices
// exceed the budget. Exact: a multiple-choice knapsack, solved layer by layer over the states that
// no other state beats in both cost and error, less those that cannot win because the linear
// relaxation of the remaining layers (Sinha and Zoltners, Operations Research 27(3), 1979) leaves
// them behind a solution already known. Throws std::invalid_argument on a layer without choices, a
// negative cost or an error that is not finite.
std::optional<Allocation> allocate_widths(const std::vector<std::vector<WidthChoice>>& layers,
                                          std::int64_t budget);

}  // namespace steelyard::qat
