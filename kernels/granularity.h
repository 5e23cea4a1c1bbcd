// Which elements share a scale, and the names of these granularities in recipes, identities of
// plans and text forms.
#pragma once

#include <array>
#include <string_view>

namespace steelyard::kernels {

// All of a tensor; each slice of one axis; each row along the last axis; `group_size` neighbours
// along an axis; a rectangle of the last two axes. (The words of compressed-tensors, which calls it
// the strategy.)
enum class Granularity { kTensor, kChannel, kToken, kGroup, kBlock };

inline constexpr std::array<std::string_view, 5> kGranularityNames{"tensor", "channel", "token",
                                                                   "group", "block"};

}  // namespace steelyard::kernels
