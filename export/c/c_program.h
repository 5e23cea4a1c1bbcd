// Programs in C that compute a graph in fixed point: C99, integers alone, without a heap or a
// library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/export/stream_options.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// As ExportFormat::refusal.
std::string c_program_refusal(const Graph& graph);

// What a program takes of a device.
struct CProgramSize {
  std::int64_t arena_bytes = 0;        // of the values
  std::int64_t least_arena_bytes = 0;  // that live at one time: no plan needs less
  std::int64_t state_bytes = 0;        // of the arena, those that a stream keeps
  std::int64_t constant_bytes = 0;     // at most: weights, biases, factors, tables, geometry
  // The same where nothing is stored once for several but weights: whatever training makes of it.
  std::int64_t most_constant_bytes = 0;
};

// The texts of its files (docs/microcontrollers.md has the interface).
struct CProgram {
  std::string header;  // sizes, offsets, the declarations
  std::string source;  // constants, the functions of the operations, steelyard_run()
  std::string test;    // main(), which compares codes of made inputs with these
  CProgramSize size;
};

// Throws std::invalid_argument as validate() does, for a graph that c_program_refusal() refuses,
// and for weights whose sums can overflow; with a stream InputError as stream_of() does. `header`:
// the file's name, by which the others include it.
CProgram c_program(const Graph& graph, const std::optional<StreamOptions>& stream = {},
                   const std::string& header = "model.h");

// Writes the files beside each other: `header`, such as model.h, then model.c and model_test.c.
// Returns their paths. With a prefix the names in them begin with that, and its capitals, instead
// of steelyard. Throws InputError for a file's name that cannot be included, std::invalid_argument
// for a prefix that is none.
std::vector<std::filesystem::path> write_c_program(const std::filesystem::path& header,
                                                   const Graph& graph,
                                                   const std::optional<StreamOptions>& stream = {},
                                                   const std::string& prefix = "");

// Whether C names can begin so: small letters, digits and _ after a letter.
bool is_c_prefix(std::string_view prefix);

}  // namespace steelyard::deploy
