// From a trained run to its deployed forms.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/export/formats.h"
#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/recipes/models/exported_data.h"
#include "steelyard/recipes/runs/experiment/experiment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/runtime/graph.h"

namespace steelyard {

// The model as it stands, with the preprocessing of its data; of a float run, in float. Throws
// InputError for quantizers that are off, have another width than planned or never observed, for
// non-finite weights, and for what has no deployed form.
deploy::Graph deployed_graph(Experiment& experiment);
// The deployed graph of a loaded checkpoint, which the graph names.
deploy::Graph deployed_graph(const LoadedRun& run);

// The key of the first thing in which the data of an export are not those of the run: "dtype",
// "mean", "stddev", "transforms", "table" or "class_names"; "" where they are.
std::string difference_in_data(const ExportedData& exported, const Experiment& experiment);

// Where the network leaves sizes of its input free and an ONNX file among the formats cannot.
std::optional<std::string> note_of_fixed_sizes(const deploy::Graph& graph,
                                               const std::vector<std::string>& formats,
                                               const deploy::OnnxOptions& options);

// The inputs and the output of the ONNX file of the run's model.
deploy::OnnxPorts onnx_ports(const Experiment& experiment);

// How a checkpoint from an early part of the schedule differs from the plan: the first quantizer
// that is off or has another width, and the number of them. Nothing in its final form, nor of a
// float run.
std::optional<std::string> difference_from_plan(Experiment& experiment);

// Throws InputError at the recipe's place where it asks for exports that its model cannot have: an
// operation without deployed form, ONNX in a build without, a larger program in C than its limits.
// A note says what such a program takes of a microcontroller. To be called before training.
void require_exportable(Experiment& experiment, const Registries& registries);
// Where the recipe asks for none, a note says why a quantized or imported model could have none, or
// what its program in C takes.
void note_exportability(Experiment& experiment, const Registries& registries);

// The path of a format in an export folder: "safetensors" is model.safetensors.
std::filesystem::path export_path(const std::filesystem::path& folder, const std::string& format);

// Writes the graph in each of the formats; creates the folder. Returns what was written. Throws
// InputError, having written nothing, if one of them has no form of the graph.
std::vector<std::filesystem::path> write_exports(const deploy::Graph& graph,
                                                 const std::vector<std::string>& formats,
                                                 const std::filesystem::path& folder,
                                                 const deploy::ExportOptions& options);

}  // namespace steelyard
