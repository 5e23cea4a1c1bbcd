// Writing the integer model as a file, which runtime/graph_file.h reads.
#pragma once

#include <filesystem>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Replaces the file atomically; equal graphs give equal bytes.
void save_graph(const std::filesystem::path& path, const Graph& graph);

// Whether save_graph() would write what the file holds, whatever it was made from. Throws
// InputError, naming the file, when it cannot be read or is damaged.
bool holds_graph(const std::filesystem::path& path, const Graph& graph);

}  // namespace steelyard::deploy
