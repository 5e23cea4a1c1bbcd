// The integer model as a file: a native checkpoint whose metadata describes the graph.
//
// docs/exports.md gives the layout. The `safetensors` library of any language reads the tensors;
// export/graph_file.h writes such files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Throws InputError, naming the file, for whatever is not such a model or does not fit together,
// and OutOfMemory or std::bad_alloc where memory runs out.
Graph load_graph(const std::filesystem::path& path);

// The model that is the bytes of such a file, for which messages have the name. Throws as
// load_graph() does.
Graph graph_of_bytes(std::string_view bytes, const std::string& name);

}  // namespace steelyard::deploy
