// Runs an ONNX file with ONNX Runtime, in a Python that has it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "steelyard/framework/tensor.h"

namespace steelyard::deploy {

// A Python that can import onnxruntime and numpy.
struct OnnxRuntime {
  std::string python;
  std::string version;  // of onnxruntime
};

// The first that has it: `python` alone where it is given, else $STEELYARD_PYTHON, the environment
// that scripts/python_env makes (seen from the current folder), and python3.
std::optional<OnnxRuntime> find_onnx_runtime(const std::string& python = "");

// How ONNX Runtime adds products of u8 and s8 on x86 without VNNI. Elsewhere both are exact.
enum class Session {
  kExact,   // session.x64quantprecision = "1"
  kDefault  // pairs of products saturate at 16 bits
};

// The output in f32 for preprocessed inputs f32 [N, H, W, C] or [N, features]; the model takes
// images as [N, C, H, W] unless it has `channels_last` (Port). The Python process ends with this
// one, however it ends. Throws std::runtime_error with what Python said when it fails.
Tensor run_onnx(const OnnxRuntime& runtime, const std::filesystem::path& model,
                const Tensor& inputs, Session session = Session::kExact,
                bool channels_last = false);

}  // namespace steelyard::deploy
