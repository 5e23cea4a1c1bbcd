#include "steelyard/framework/train/trained_weights.h"

#include <algorithm>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/torch_file.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/float_range.h"

namespace steelyard {
namespace {

void require_variances(const Tensor& values, const std::string& what) {
  const Tensor variances = values.to(DType::kF32);
  const auto span = variances.span<float>();
  const auto bad = std::find_if(span.begin(), span.end(), [](float v) { return v < 0; });
  if (bad == span.end()) return;
  throw InputError(what + ": expected variances of at least 0, got " + std::to_string(*bad) +
                   " in channel " + std::to_string(bad - span.begin()));
}

}  // namespace

WeightsFile read_weights(const std::filesystem::path& path) {
  const std::string kind = kind_of(InputFile(path));
  if (kind == kTorchKind) {
    TorchFile file = read_torch_file(path);
    return {std::move(file.tensors), std::move(file.entry)};
  }
  if (kind == kOldTorchKind) {
    throw InputError(printable(path.string()) +
                     ": in the format of PyTorch before 1.6, which is not read: load it and save "
                     "it again with a newer one");
  }
  return {load_tensors(path).tensors};
}

void require_trained_values(const std::vector<NamedTensor>& tensors,
                            const std::filesystem::path& path) {
  for (const NamedTensor& t : tensors) {
    if (!is_floating(t.tensor.dtype()) || t.name.find('/') != std::string::npos) continue;
    const std::string what = printable(path.string()) + ": tensor '" + printable(t.name) + "'";
    require_finite_values(t.tensor, what);
    require_within_float32(t.tensor, what);
    if (t.name.ends_with("running_var")) require_variances(t.tensor, what);
  }
}

WeightsFile load_trained_weights(Module& module, const std::filesystem::path& path) {
  WeightsFile file = read_weights(path);
  load_into(module, file.tensors, path.string());
  require_trained_values(file.tensors, path);
  return file;
}

}  // namespace steelyard
