// What the formats of graphs in fixed point have in common: integers from the input to the output.
#pragma once

#include <string>
#include <string_view>

#include "steelyard/export/op_form.h"

namespace steelyard::deploy {

// Whether the node quantizes the model's input: such formats begin with its output.
bool makes_input_codes(const Graph& graph, const Node& node);
// The value that they have as their input: the codes of the model's.
std::size_t input_codes(const Graph& graph);

// The word of the profile whose rounding the graph's codes have: "tflm".
std::string_view fixed_point_profile(const Graph& graph);

// Why a format, "a TFLite file", has no form of the graph: it has one of the operations of whose
// rows has_form() is true. "" where it has.
std::string fixed_point_refusal(const Graph& graph, const std::string& format,
                                bool (*has_form)(const OpForm&));

}  // namespace steelyard::deploy
