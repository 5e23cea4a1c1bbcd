// The option --python of verbs that run ONNX files.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "steelyard/export/onnx/onnx_runtime.h"

namespace steelyard::cli {

// `what`: the package that it has, and what for.
void add_python(CLI::App& verb, std::string& python,
                const std::string& what = "onnxruntime, for RUN/export/model.onnx");

// ONNX Runtime in that Python, or where it is empty in one that is found. Throws InputError where
// the Python that was given has none.
std::optional<deploy::OnnxRuntime> runtime_in(const std::string& python);

}  // namespace steelyard::cli
