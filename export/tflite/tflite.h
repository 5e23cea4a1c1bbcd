// TFLite files: integers at the border and inside, for TFLite Micro and LiteRT.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "steelyard/export/stream_options.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// As ExportFormat::refusal: such a file has codes in fixed point alone.
std::string tflite_refusal(const Graph& graph);

struct TfliteExport {
  // Weights of 4 bits or fewer are two to a byte where TFLite Micro has kernels for them: those of
  // convolutions and of a Linear of one output.
  bool pack_int4 = true;
  std::optional<StreamOptions> stream = {};
};

// The bytes of the file for samples one by one: input and output are s8 codes under the names of
// the graph's ports, whose scales and zero points the file has; images are [1, H, W, C]. The
// metadata "steelyard" is JSON: preprocessing, names of classes, and of a stream its frames. Throws
// std::invalid_argument for a graph that tflite_refusal() refuses; with a stream InputError as
// stream_of() does.
std::string tflite_file(const Graph& graph, const TfliteExport& options = {});

void write_tflite(const std::filesystem::path& path, const Graph& graph,
                  const TfliteExport& options = {});

}  // namespace steelyard::deploy
