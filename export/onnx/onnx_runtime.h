// Runs an ONNX file with ONNX Runtime, in a Python that has it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/export/python_program.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// A Python that can import onnxruntime and numpy, and onnxruntime's version.
using OnnxRuntime = PythonProgram;

// As find_python() finds it.
std::optional<OnnxRuntime> find_onnx_runtime(const std::string& python = "");

// What to tell the user if there is none.
inline constexpr const char* kNoOnnxRuntime =
    "no Python with onnxruntime: scripts/python_env makes one and prints its path, for "
    "$STEELYARD_PYTHON";

// How ONNX Runtime adds products of u8 and s8 on x86 without VNNI. Elsewhere both are exact.
enum class Session {
  kExact,   // session.x64quantprecision = "1"
  kDefault  // pairs of products saturate at 16 bits
};

// The layouts of the model's input and output, images as [N, C, H, W] where nothing is said. If it
// has several inputs or outputs, those of each, in the file's order.
struct OnnxPorts {
  Port input = {};
  Port output = {};
  std::vector<PartPort> inputs = {};
  std::vector<PartPort> outputs = {};
};

// ONNX Runtime cannot load a file.
class OnnxFileError : public InputError {
 public:
  using InputError::InputError;
};

// The output in f32 for preprocessed inputs f32 [N, ...], images with channels last, a row for each
// sample: of images the elements of [H, W, C], and of several outputs one after another. The Python
// process ends with this one, however it ends. Throws OnnxFileError, and std::runtime_error with
// what Python said when it fails otherwise.
Tensor run_onnx(const OnnxRuntime& runtime, const std::filesystem::path& model,
                const Tensor& inputs, Session session = Session::kExact,
                const OnnxPorts& ports = {});

// An output of one sample, of float or whole numbers; empty: it is of another type, such as text.
struct OnnxValues {
  bool whole = false;
  std::vector<double> values = {};

  bool operator==(const OnnxValues&) const = default;
};

// The outputs of each sample, which runs alone, in the file's order: their sizes may differ between
// samples. Throws as run_onnx().
std::vector<std::vector<OnnxValues>> run_onnx_alone(const OnnxRuntime& runtime,
                                                    const std::filesystem::path& model,
                                                    const Tensor& inputs, const OnnxPorts& ports);

// What the outputs of a joined file and those of its two parts, run one after the other, have in
// common.
struct JoinedComparison {
  std::int64_t elements = 0;
  std::int64_t differing = 0;  // by more than 1e-5 of the value, or of 1 if that is more
  float largest = 0;
};

// Runs the inputs, a sample at a time, through `joined`, and through `body` and what stands behind
// it, `rest`. Throws as run_onnx().
JoinedComparison compare_joined(const OnnxRuntime& runtime, const std::filesystem::path& joined,
                                const std::filesystem::path& body,
                                const std::filesystem::path& rest, const Tensor& inputs,
                                const OnnxPorts& ports);

// Milliseconds that each of the models, of the same ports, takes for these inputs: medians of 20
// rounds in which the models run in turn. `threads`: 0 leaves them to ONNX Runtime. Throws as
// run_onnx().
std::vector<float> time_onnx(const OnnxRuntime& runtime,
                             const std::vector<std::filesystem::path>& models, const Tensor& inputs,
                             const OnnxPorts& ports = {}, Session session = Session::kDefault,
                             int threads = 0);

}  // namespace steelyard::deploy
