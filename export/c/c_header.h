// Writes a graph as a C header: tables of constants, for programs without a parser or a heap.
#pragma once

#include <filesystem>
#include <string>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// The text, C99 and C++ alike (docs/exports.md has the layout). Floats have nine digits, doubles
// seventeen, from which a compiler reads the same bits. Throws std::invalid_argument as validate()
// does, and for what it has no form of.
std::string c_header(const Graph& graph);

// What the header has no form of: "layer 'name': ..."; "" where it has one of everything.
std::string c_refusal(const Graph& graph);

// Replaces `path` by it.
void write_c_header(const std::filesystem::path& path, const Graph& graph);

}  // namespace steelyard::deploy
