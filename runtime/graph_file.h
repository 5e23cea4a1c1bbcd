// The integer model as a file: a native checkpoint whose metadata describes the graph.
//
// docs/exports.md gives the layout. The `safetensors` library of any language reads the tensors;
// export/graph_file.h writes such files.
#pragma once

#include <filesystem>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Throws InputError, naming the file, for whatever is not such a model or does not fit together.
Graph load_graph(const std::filesystem::path& path);

}  // namespace steelyard::deploy
