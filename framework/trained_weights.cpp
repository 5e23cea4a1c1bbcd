#include "steelyard/framework/trained_weights.h"

#include <algorithm>

#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/float_range.h"

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

std::vector<NamedTensor> load_trained_weights(Module& module, const std::filesystem::path& path) {
  std::vector<NamedTensor> tensors = load_tensors(path).tensors;
  load_into(module, tensors, path.string());
  for (const NamedTensor& t : tensors) {
    if (!is_floating(t.tensor.dtype()) || t.name.find('/') != std::string::npos) continue;
    const std::string what = printable(path.string()) + ": tensor '" + printable(t.name) + "'";
    require_finite_values(t.tensor, what);
    require_within_float32(t.tensor, what);
    if (t.name.ends_with("running_var")) require_variances(t.tensor, what);
  }
  return tensors;
}

}  // namespace steelyard
