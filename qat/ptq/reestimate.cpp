#include "steelyard/qat/ptq/reestimate.h"

#include <stdexcept>

#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {
namespace {

// Streams of one seed are told apart by their upper 16 bits (framework/data/streams.h).
constexpr std::uint64_t kDropoutStream = std::uint64_t{0xB9} << 48;

// Switches everything in the model to measuring; the destructor switches back.
class Measuring {
 public:
  explicit Measuring(Module& model) {
    for (const NamedModule& entry : model.named_modules()) {
      if (auto* norm = dynamic_cast<BatchNorm*>(entry.module)) {
        norms_.push_back({norm, norm->frozen(), norm->options().momentum});
        norm->set_frozen(false);
      }
      if (auto* folded = dynamic_cast<FoldedNorm*>(entry.module)) {
        folded_.push_back(folded);
        folded->set_reestimating(true);
      }
      if (auto* quantizer = dynamic_cast<FakeQuantize*>(entry.module)) {
        quantizers_.push_back({quantizer, quantizer->observing()});
        quantizer->set_observing(false);
      }
    }
    for (const NamedModule& entry : model.named_modules()) {
      auto* layer = dynamic_cast<QuantizedLayer*>(entry.module);
      if (layer != nullptr && layer->weight_quantizer() != nullptr && layer->folds_norm()) {
        layer->weight_quantizer()->set_observing(true);
      }
    }
  }
  ~Measuring() {
    for (const Norm& n : norms_) {
      n.norm->set_frozen(n.frozen);
      n.norm->set_momentum(n.momentum);
    }
    for (FoldedNorm* folded : folded_) folded->set_reestimating(false);
    for (const Quantizer& q : quantizers_) q.quantizer->set_observing(q.observing);
  }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

  // The weight of the next batch: 1 / (i + 1) for batch i makes the mean of all.
  void set_momentum(double momentum) {
    for (const Norm& n : norms_) n.norm->set_momentum(momentum);
  }
  void freeze_norms() {
    for (const Norm& n : norms_) n.norm->set_frozen(true);
  }

 private:
  struct Norm {
    BatchNorm* norm;
    bool frozen;
    double momentum;
  };
  struct Quantizer {
    FakeQuantize* quantizer;
    bool observing;
  };
  std::vector<Norm> norms_;
  std::vector<FoldedNorm*> folded_;
  std::vector<Quantizer> quantizers_;
};

}  // namespace

void reestimate_batch_norms(Module& model, std::int64_t batches,
                            const std::function<Tensor(std::int64_t)>& inputs, std::uint64_t seed) {
  if (batches < 1) {
    throw std::invalid_argument("[reestimate_batch_norms] expected 1 batch or more, got " +
                                std::to_string(batches));
  }
  const NoGradGuard no_grad;
  const Device device = device_of(model);
  Measuring measuring(model);
  const auto pass = [&](std::int64_t batch) {
    Rng rng(seed, kDropoutStream + static_cast<std::uint64_t>(batch));
    ForwardContext context{.training = true, .rng = &rng};
    model.forward(Variable(inputs(batch).to(device)), context).value();
  };
  for (std::int64_t i = 0; i < batches; ++i) {
    measuring.set_momentum(1.0 / static_cast<double>(i + 1));
    pass(i);
  }
  // One more pass as deployed, so that the ranges of weights follow the statistics after the last
  // batch.
  measuring.freeze_norms();
  pass(0);
}

std::int64_t count_batch_norms(Module& model) {
  std::int64_t count = 0;
  for (const NamedModule& entry : model.named_modules()) {
    if (dynamic_cast<BatchNorm*>(entry.module) != nullptr) ++count;
  }
  return count;
}

ReestimateCallback::ReestimateCallback(Module& model, const Dataset& train,
                                       const LoaderOptions& loader_options, std::int64_t epochs,
                                       std::int64_t batches)
    : model_(model),
      train_(train),
      loader_options_(loader_options),
      epochs_(epochs),
      batches_(batches) {}

void ReestimateCallback::on_steps_done(std::int64_t epoch) {
  if (epoch + 1 != epochs_) return;
  const std::vector<std::int64_t> order = epoch_order(train_, loader_options_, epochs_);
  const auto inputs = [&](std::int64_t batch) {
    return make_batch(train_, loader_options_, order, epochs_, batch).inputs;
  };
  reestimate_batch_norms(model_, batches_, inputs, loader_options_.seed);
}

}  // namespace steelyard::qat
