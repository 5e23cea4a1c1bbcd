// The table of the files that a deployed graph can be written as.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/export/onnx/onnx.h"
#include "steelyard/export/stream_options.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Options of single formats.
struct ExportOptions {
  OnnxOptions onnx = {};
  bool tflite_pack_int4 = true;              // TfliteExport::pack_int4
  std::optional<StreamOptions> stream = {};  // programs in C and TFLite files
  std::string c_prefix = {};                 // write_c_program()'s
};

struct ExportFormat {
  std::string_view name;    // in recipes and on the command line
  std::string_view title;   // in messages
  std::string_view suffix;  // of the file: ".onnx"
  bool by_default;          // written if no format is chosen
  bool fixed_by_default;    // the same for models in fixed point
  bool (*can_write)();      // in this build
  // Why a graph of such operations and codes has no such form, whatever its parameters are; ""
  // where it has: what is known before training.
  std::string (*refusal)(const Graph&);
  // Replaces the file, and others that belong to it; their paths. Throws InputError for a graph
  // that has no such form.
  std::vector<std::filesystem::path> (*write)(const std::filesystem::path& path, const Graph& graph,
                                              const ExportOptions& options);
};

// The table. To add a format: its writer and a row here.
const std::vector<ExportFormat>& export_formats();

// Throws std::invalid_argument listing the names for another.
const ExportFormat& export_format(std::string_view name);

std::vector<std::string> format_names();
// The formats that this build writes of a profile's models if none are given.
std::vector<std::string> default_format_names(qat::Profile profile = qat::Profile::kOrt);

}  // namespace steelyard::deploy
