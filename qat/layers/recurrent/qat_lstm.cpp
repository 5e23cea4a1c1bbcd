#include "steelyard/qat/layers/recurrent/qat_lstm.h"

#include <vector>

#include "steelyard/qat/layers/qat_add.h"
#include "steelyard/qat/layers/qat_concat.h"
#include "steelyard/qat/layers/qat_moves.h"
#include "steelyard/qat/layers/qat_mul.h"
#include "steelyard/qat/layers/qat_table_activation.h"
#include "steelyard/qat/layers/recurrent/recurrence.h"

namespace steelyard::qat {
namespace {

using kernels::ActivationFunction;

// Columns [first, first + count) of x [N, C].
Variable columns(const Variable& x, std::int64_t first, std::int64_t count) {
  return part_of(x, {{0, x.dim(0), 1}, {first, count, 1}});
}

// In the first pass in training learned scales wait for its end: those of values that all steps
// share would begin with what the first step has.
class WholePassFirst {
 public:
  WholePassFirst(Module& layer, const ForwardContext& context) {
    if (!context.training) return;
    for (const NamedModule& part : layer.named_modules()) {
      auto* quantizer = dynamic_cast<ActivationQuantizer*>(part.module);
      if (quantizer == nullptr || quantizer->observed()) continue;
      quantizer->postpone_learning(true);
      waiting_.push_back(quantizer);
    }
  }
  ~WholePassFirst() {
    for (ActivationQuantizer* quantizer : waiting_) quantizer->postpone_learning(false);
  }
  WholePassFirst(const WholePassFirst&) = delete;
  WholePassFirst& operator=(const WholePassFirst&) = delete;

 private:
  std::vector<ActivationQuantizer*> waiting_;
};

}  // namespace

QatLstm::QatLstm(const LSTM& layer, const FormRequest& request)
    : QuantizedLayer(linear_product(), request.weight, request.bias, kernels::Activation::kNone,
                     request.config),
      options_(layer.options()),
      recurrent_(std::make_shared<Recurrence>(layer.recurrent_weight().value(), request.config)) {
  for (const char* state : {"first_output", "first_cell"}) {
    register_buffer(state, Tensor::zeros({options_.units}));
  }
  register_child("", recurrent_);
  if (!request.config.activations) return;
  const QuantizerConfig& values = *request.config.activations;
  const auto added = [&](const char* name, auto module) {
    register_child(name, module);
    return module;
  };
  const auto table = [&](ActivationFunction function) {
    return std::make_shared<QatTableActivation>(function, values);
  };
  sum_ = added("sum", std::make_shared<QatAdd>(kernels::Activation::kNone, values));
  gates_ = added("gates", table(ActivationFunction::kSigmoid));
  update_ = added("update", table(ActivationFunction::kTanh));
  kept_ = added("kept", std::make_shared<QatMul>(values));
  added_ = added("added", std::make_shared<QatMul>(values));
  cell_ = added("cell", std::make_shared<QatAdd>(kernels::Activation::kNone, values));
  squashed_ = added("squashed", table(ActivationFunction::kTanh));
  output_ = added("output", std::make_shared<QatMul>(values));
  if (options_.return_sequences) joined_ = added("joined", std::make_shared<QatCat>(values));
}

QatLstm::State QatLstm::step(const Variable& sums, const State& before, ForwardContext& context) {
  const std::int64_t units = options_.units;
  const bool first = !before.output.defined();
  const Variable all =
      first ? sums : sum_->join({sums, recurrent_->forward(before.output, context)}, context);
  const Variable gates = gates_->forward(columns(all, 0, 3 * units), context);
  const Variable update = update_->forward(columns(all, 3 * units, units), context);
  const auto gate = [&](std::int64_t i) { return columns(gates, i * units, units); };
  State after;
  after.cell = added_->join({gate(0), update}, context);
  if (!first) {
    const Variable kept = kept_->join({gate(2), before.cell}, context);
    after.cell = cell_->join({kept, after.cell}, context);
  }
  after.output = output_->join({gate(1), squashed_->forward(after.cell, context)}, context);
  return after;
}

Variable QatLstm::forward(const Variable& x, ForwardContext& context) {
  require_sequence(x);
  if (output_ == nullptr) {
    const Variable y = lstm_of_rounded_weights(x, *this, *recurrent_, options_.pass, context);
    return steps_of(y, options_);
  }
  const WholePassFirst learning(*this, context);
  const Variable sums = QuantizedLayer::forward(x, context);
  const std::int64_t samples = x.dim(0), length = x.dim(1), width = 4 * options_.units;
  std::vector<Variable> outputs(static_cast<std::size_t>(length));
  State state;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t t = options_.pass.reverse ? length - 1 - i : i;
    const Variable own = part_of(sums, {{0, samples, 1}, {t, 1, 1}, {0, width, 1}});
    state = step(under_shape(own, {samples, width}), state, context);
    outputs[static_cast<std::size_t>(t)] = state.output;
  }
  if (joined_ == nullptr) return state.output;
  return under_shape(joined_->join(outputs, context), {samples, length, options_.units});
}

std::string QatLstm::description() const { return "Qat" + lstm_text(options_); }

QuantizedForm lstm_form() {
  QuantizedForm form =
      form_of<LSTM>("LSTM", FormKind::kWeighted,
                    [](const LSTM& layer, const FormRequest& request) -> std::shared_ptr<Module> {
                      return std::make_shared<QatLstm>(layer, request);
                    });
  form.is_linear = false;
  form.more_weights = {"recurrent_weight"};
  form.more_activations = {"sums", "gates", "cell"};
  form.refusal = [](const Module& module, const QuantizerConfig& output) -> std::string {
    if (output.scheme.dynamic) return "dynamic activations are for Linear and convolutions";
    return state_refusal(dynamic_cast<const LSTM&>(module));
  };
  return form;
}

}  // namespace steelyard::qat
