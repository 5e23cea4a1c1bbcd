// What C programs have that are called with new frames of a sequence.
#pragma once

#include <string>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/stream.h"

namespace steelyard::deploy {

// The call for a node that makes a history, in a place of its own.
void add_c_history(CNodes& nodes, const Node& node);

// Of the header: constants of the stream, and the declaration of steelyard_reset().
std::string c_stream_constants(const Stream& stream, std::int64_t state_bytes);
std::string c_stream_declaration();
// Of the source: steelyard_reset().
std::string c_stream_reset();

// The test's main(): made frames, after a reset, and the codes that the graph of the whole window
// gives for each window of them. `header` is the name of the program's.
std::string c_stream_test(const Stream& stream, const Graph& whole, const std::string& header);

}  // namespace steelyard::deploy
