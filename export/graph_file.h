// The integer model as a file: a native checkpoint whose metadata describes the graph.
//
// docs/exports.md gives the layout. The `safetensors` library of any language reads the tensors.
#pragma once

#include <filesystem>

#include "steelyard/export/graph.h"

namespace steelyard::deploy {

// Replaces the file atomically; equal graphs give equal bytes.
void save_graph(const std::filesystem::path& path, const Graph& graph);

// Throws InputError, naming the file, for whatever is not such a model or does not fit together.
Graph load_graph(const std::filesystem::path& path);

// Whether save_graph() would write what the file holds, whatever it was made from. Throws
// InputError, naming the file, when it cannot be read or is damaged.
bool holds_graph(const std::filesystem::path& path, const Graph& graph);

}  // namespace steelyard::deploy
