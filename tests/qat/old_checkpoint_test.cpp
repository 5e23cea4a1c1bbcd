// A checkpoint whose zero points learned in codes gives the same scales and zero points today.
#include "steelyard/qat/model/old_checkpoint.h"

#include <gtest/gtest.h>

#include <map>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;

std::shared_ptr<ActivationQuantizer> learned_quantizer(bool is_signed) {
  return std::make_shared<ActivationQuantizer>(QuantizerConfig{
      .scheme = {.bits = 4, .is_signed = is_signed, .symmetric = false, .narrow_range = false},
      .observer = {.type = "min_max"},
      .learning = Learning::kScaleAndZeroPoint});
}

Variable latent(const Module& module, const std::string& name) {
  for (const NamedParameter& p : module.named_parameters()) {
    if (p.name.ends_with(name)) return p.variable;
  }
  throw std::out_of_range(name);
}

// What an earlier version would have written for this state, with an optimizer's state and the
// trained tensors of an average beside.
Checkpoint in_codes(const Module& model, float zero_point, float trained_zero_point) {
  Checkpoint old;
  const auto one = [](float value) { return Tensor::full({1}, value); };
  for (const NamedTensor& t : module_state(model)) {
    const bool offset = t.name.ends_with("learned_offset");
    const std::string name =
        offset ? t.name.substr(0, t.name.rfind('.')) + ".learned_zero_point" : t.name;
    old.tensors.push_back({name, offset ? one(zero_point) : t.tensor.clone()});
    old.tensors.push_back({name + "/trained", offset ? one(trained_zero_point) : t.tensor.clone()});
    if (offset) {
      old.tensors.push_back({name + "/exp_avg", one(0.5F)});
      old.tensors.push_back({name + "/step", Tensor::full({}, 7, DType::kI64)});
    }
  }
  return old;
}

TEST(OldCheckpoint, ZeroPointsInCodesBecomeOffsets) {
  for (const bool is_signed : {false, true}) {
    const int lowest = is_signed ? -8 : 0;
    auto quantizer = learned_quantizer(is_signed);
    Sequential model(Sequential::Children{quantizer});
    ForwardContext context{.training = true};
    model.forward(Variable(random_tensor({4, 8}, 1, DType::kF32)), context);
    latent(model, "learned_scale").value().data<float>()[0] *= 0.7F;
    const float scale = quantizer->host_scale()[0];
    const testing::TemporaryFolder folder;
    const auto path = folder / "old.safetensors";
    save_checkpoint(
        path, in_codes(model, static_cast<float>(lowest) + 4.4F, static_cast<float>(lowest) + 2));

    auto loaded = learned_quantizer(is_signed);
    Sequential copy(Sequential::Children{loaded});
    EXPECT_THROW(load_into(copy, load_checkpoint(path).tensors, "old"), InputError);
    const Checkpoint upgraded = load_checkpoint_of(copy, path);
    load_into(copy, upgraded.tensors, "old");
    EXPECT_EQ(loaded->host_scale()[0], scale);
    EXPECT_EQ(loaded->host_zero_point()[0], lowest + 4);
    EXPECT_FLOAT_EQ(latent(copy, "learned_offset").value().data<float>()[0], -4.4F * scale);

    std::map<std::string, Tensor> named;
    for (const NamedTensor& t : upgraded.tensors) named[t.name] = t.tensor;
    EXPECT_FLOAT_EQ(static_cast<float>(named.at("0.learned_offset/trained").item()), -2 * scale);
    EXPECT_EQ(named.at("0.learned_offset/exp_avg").item(), 0);
    EXPECT_EQ(named.at("0.learned_offset/step").item(), 0);
    EXPECT_EQ(named.at("0.learned_offset/step").dtype(), DType::kI64);
    for (const auto& [name, tensor] : named) {
      EXPECT_EQ(name.find("learned_zero_point"), std::string::npos) << name;
    }
  }
}

// What lacks the scales beside it is left as it is: loading says what is missing.
TEST(OldCheckpoint, IncompleteOnesAreLeftToTheLoader) {
  auto quantizer = learned_quantizer(false);
  Sequential model(Sequential::Children{quantizer});
  for (const char* missing : {"learned_scale", "initial_scale", "scale_floor", "switches"}) {
    Checkpoint old = in_codes(model, 3, 3);
    std::erase_if(old.tensors, [&](const NamedTensor& t) { return t.name.ends_with(missing); });
    upgrade_checkpoint(model, old);
    EXPECT_THROW(load_into(model, old.tensors, "old"), InputError) << missing;
  }
  Checkpoint damaged = in_codes(model, 3, 3);
  for (NamedTensor& t : damaged.tensors) {
    if (t.name.ends_with("switches")) t.tensor = Tensor::full(t.tensor.shape(), 200, DType::kU8);
  }
  upgrade_checkpoint(model, damaged);
  EXPECT_THROW(load_into(model, damaged.tensors, "old"), InputError);
}

}  // namespace
}  // namespace steelyard::qat
