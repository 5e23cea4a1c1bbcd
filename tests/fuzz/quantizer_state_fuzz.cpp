// The state of a quantizer, saved and then changed: a byte that says which quantizer, then three
// bytes for each change: which tensor, where, what. What is accepted is quantized with, observed
// with and saved as what is accepted again.
#include "steelyard/qat/model/saved_state.h"

#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "steelyard/layers/containers/sequential.h"
#include "steelyard/observers/registry.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "steelyard/qat/quantizers/weight_quantizer.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard::qat {
namespace {

constexpr Learning kLearnings[] = {Learning::kNothing, Learning::kClipping,
                                   Learning::kScaleAndZeroPoint};

unsigned kinds() {
  constexpr unsigned kTensors = 2;  // activations, weights
  return static_cast<unsigned>(observers::observer_rows().size()) * kTensors *
         static_cast<unsigned>(std::size(kLearnings));
}

// Two, or one where the observer knows whole tensors only.
std::int64_t weight_channels(const QuantizerConfig& config) {
  try {
    observers::make_observer(config.observer, config.scheme, 2);
    return 2;
  } catch (const std::invalid_argument&) {
    return 1;
  }
}

Tensor values(float scale) {
  Tensor x = Tensor::empty({2, 8});
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = scale * (static_cast<float>(i * 37 % 17) - 6.0F);
  }
  return x;
}

std::shared_ptr<FakeQuantize> quantizer_of(unsigned kind) {
  const std::vector<observers::ObserverRow>& rows = observers::observer_rows();
  const std::size_t observer = kind % rows.size();
  const bool weights = kind / rows.size() % 2 == 1;
  QuantizerConfig config;
  config.scheme = {.bits = 4, .is_signed = weights, .symmetric = weights, .narrow_range = weights};
  config.observer.type = rows[observer].name;
  config.learning = kLearnings[kind / rows.size() / 2];
  if (!weights) return std::make_shared<ActivationQuantizer>(config);
  return std::make_shared<WeightQuantizer>(config, weight_channels(config));
}

void step(Module& model, float scale) {
  ForwardContext context{.training = true};
  model.forward(Variable(values(scale), /*requires_grad=*/true), context);
}

Checkpoint state_of(const Module& model) {
  Checkpoint checkpoint;
  for (const NamedTensor& t : module_state(model)) {
    checkpoint.tensors.push_back({t.name, t.tensor.clone()});
  }
  return checkpoint;
}

// Counts at their limit have grown beyond it in use.
Checkpoint without_growth(Checkpoint checkpoint) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  constexpr std::int64_t kGrowth = 1000;
  for (const NamedTensor& t : checkpoint.tensors) {
    if (t.tensor.dtype() != DType::kI64) continue;
    for (std::int64_t& count : t.tensor.span<std::int64_t>()) {
      if (count > kMost && count < kMost + kGrowth) count = kMost;
    }
  }
  return checkpoint;
}

// What a step leaves behind.
const Checkpoint& saved(unsigned kind) {
  static std::map<unsigned, Checkpoint> all;
  const auto found = all.find(kind);
  if (found != all.end()) return found->second;
  Sequential model(Sequential::Children{quantizer_of(kind)});
  step(model, 0.5F);
  return all.emplace(kind, state_of(model)).first->second;
}

Checkpoint changed(const Checkpoint& from, std::string_view changes) {
  Checkpoint checkpoint;
  for (const NamedTensor& t : from.tensors)
    checkpoint.tensors.push_back({t.name, t.tensor.clone()});
  for (; changes.size() >= 3; changes.remove_prefix(3)) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(changes[i]); };
    const Tensor& tensor = checkpoint.tensors[byte(0) % checkpoint.tensors.size()].tensor;
    static_cast<unsigned char*>(tensor.raw())[byte(1) % tensor.bytes()] = byte(2);
  }
  return checkpoint;
}

void use(FakeQuantize& quantizer, Module& model) {
  if (quantizer.quantizing() && !quantizer.observed()) return;  // is refused when it is used
  ForwardContext evaluation;
  model.forward(Variable(values(1)), evaluation);
  quantizer.float_range();
  if (!quantizer.quantizing()) return;
  for (const float scale : {1.0F, 1e30F, 1e-38F}) step(model, scale);
  quantizer.set_bits(quantizer.scheme().bits == 8 ? 2 : 8);
  step(model, 1);
}

}  // namespace
}  // namespace steelyard::qat

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  if (size < 1) return 0;
  const unsigned kind = data[0] % qat::kinds();
  const Checkpoint checkpoint = qat::changed(qat::saved(kind), fuzz::view(data + 1, size - 1));
  const auto quantizer = qat::quantizer_of(kind);
  Sequential model(Sequential::Children{quantizer});
  if (!fuzz::accepted([&] { qat::require_quantizer_state(model, checkpoint, "c"); })) return 0;
  load_into(model, checkpoint.tensors, "c");
  qat::use(*quantizer, model);
  qat::require_quantizer_state(model, qat::without_growth(qat::state_of(model)), "after use");
  return 0;
}
