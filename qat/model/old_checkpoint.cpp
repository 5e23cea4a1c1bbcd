#include "steelyard/qat/model/old_checkpoint.h"

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/kernels/quantizer_state/formulas.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/saved_state.h"
#include "steelyard/qat/quantizers/learned_scale.h"

namespace steelyard::qat {
namespace {

constexpr const char* kOldZeroPoint = "learned_zero_point";
constexpr const char* kTrained = "/trained";  // after the names of framework/train/weight_average.h

// A tensor of one quantizer, or an undefined one. `suffix`: that of a second set of values.
Tensor find(const Checkpoint& checkpoint, const std::string& quantizer, const char* tensor,
            const std::string& suffix) {
  const std::string name = join_path(quantizer, tensor) + suffix;
  for (const NamedTensor& t : checkpoint.tensors) {
    if (t.name == name) return t.tensor;
  }
  return {};
}

// The offsets of latents in codes, or an undefined tensor where their scales are missing:
// loading the checkpoint says what is.
Tensor offsets_of(const NamedQuantizer& entry, const Checkpoint& checkpoint,
                  const Tensor& zero_points, const std::string& suffix) {
  const Tensor latent = find(checkpoint, entry.name, kLearnedScale, suffix);
  const Tensor initial = find(checkpoint, entry.name, "initial_scale", suffix);
  const Tensor floor = find(checkpoint, entry.name, "scale_floor", suffix);
  const Tensor switches = find(checkpoint, entry.name, "switches", suffix);
  for (const Tensor& t : {zero_points, latent, initial, floor}) {
    const bool fits = t.defined() && t.dtype() == DType::kF32 && t.shape() == zero_points.shape();
    if (!fits) return {};
  }
  const auto scheme = entry.quantizer->scheme_in(switches);
  if (!scheme) return {};
  const kernels::CodeRange range = scheme->code_range();
  Tensor offsets = Tensor::empty(zero_points.shape());
  for (std::int64_t c = 0; c < offsets.size(); ++c) {
    const float scale = kernels::scale_of_latent(latent.data<float>()[c], initial.data<float>()[c],
                                                 floor.data<float>()[c], range);
    offsets.data<float>()[c] = kernels::dequantize_code(static_cast<float>(range.qmin),
                                                        zero_points.data<float>()[c], scale);
  }
  return offsets;
}

}  // namespace

Checkpoint load_checkpoint_of(Module& model, const std::filesystem::path& path) {
  Checkpoint checkpoint = load_checkpoint(path);
  upgrade_checkpoint(model, checkpoint);
  require_quantizer_state(model, checkpoint, printable(path.string()));
  return checkpoint;
}

void upgrade_checkpoint(Module& model, Checkpoint& checkpoint) {
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    const std::string old_name = join_path(entry.name, kOldZeroPoint);
    for (NamedTensor& t : checkpoint.tensors) {
      if (!t.name.starts_with(old_name)) continue;
      const std::string suffix = t.name.substr(old_name.size());
      Tensor upgraded;
      if (suffix.empty() || suffix == kTrained) {
        upgraded = offsets_of(entry, checkpoint, t.tensor, suffix);
      } else if (suffix.starts_with('/')) {
        upgraded = Tensor::zeros(t.tensor.shape(), t.tensor.dtype());
      }
      if (upgraded.defined()) t = {join_path(entry.name, kLearnedOffset) + suffix, upgraded};
    }
  }
}

}  // namespace steelyard::qat
