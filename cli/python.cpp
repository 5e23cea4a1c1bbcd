#include "cli/python.h"

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::cli {

void add_python(CLI::App& verb, std::string& python, const std::string& what) {
  verb.add_option("--python", python,
                  "A Python with " + what +
                      ", started isolated (-I) (default: the first of $STEELYARD_PYTHON, "
                      "python-env in the build folder of this program, and python3 that has it)");
}

std::optional<deploy::OnnxRuntime> runtime_in(const std::string& python) {
  auto runtime = deploy::find_onnx_runtime(python);
  if (!runtime && !python.empty()) {
    throw InputError(printable(python) + ": no Python with numpy and onnxruntime");
  }
  return runtime;
}

}  // namespace steelyard::cli
