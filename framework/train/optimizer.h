// First-order optimizers over named parameters.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// Selects the parameters without weight decay.
using NoDecay = std::function<bool(const NamedParameter&)>;

// A parameter's learning rate as a multiple of the step's; empty: 1 for all.
using LrFactor = std::function<double(const NamedParameter&)>;

// What the steps of a parameter are relative to.
struct StepUnit {
  // Positive sizes of its elements, like it; undefined: nothing. The numbers may change between
  // steps, the tensor's place may not.
  Tensor size{};
  double count = 1;  // about how many of them a step of learning rate 1 moves an element
};
using StepUnits = std::function<StepUnit(const NamedParameter&)>;

// The default NoDecay: biases, every parameter of rank 0 or 1 (the weights of norms), and the
// constants of ConstantArithmetic, "value", of one number or one for each channel.
bool is_bias_or_norm(const NamedParameter& parameter);

// Updates parameters from their gradients. Values are changed in place, in the tensors the
// parameters hold; a parameter without a gradient is skipped, and so is its state. A parameter that
// is given under two names, because its module is in two slots, is updated once per step, under its
// first name. Everything is where the parameters are when the optimizer is made, and stays there.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // A copy would have its own rate and the same state.
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // "sgd", "adamw": the name in recipes and checkpoints.
  virtual std::string type_name() const = 0;

  // One update with learning rate `lr`: prepare(lr), then apply(). Throws TrainingDiverged instead
  // where a model of the parameters has counted faults (GradNode::check), std::invalid_argument on
  // a rate that is negative or not finite and on a gradient unlike its parameter.
  void step(double lr);
  // The halves of a step. The first counts the updates and sends what depends on them and on the
  // rate to the parameters' device; the second reads it there and is all that a CUDA graph has to
  // record: to run it again, call prepare() before, with gradients for the same parameters.
  void prepare(double lr);
  void apply();

  const std::vector<NamedParameter>& parameters() const { return parameters_; }

  // Everything that resuming needs, as "<parameter>/<state>". The tensors exist from construction
  // and share storage with the optimizer: a checkpoint restores them with copy_from.
  virtual std::vector<NamedBuffer> named_state() const = 0;

 protected:
  // `factors` numbers of each parameter change from step to step. Throws std::invalid_argument on
  // parameters that are not f32 or f64 or not on one device, on a name that is given twice, which
  // named_state() would have twice, too, on a negative decay or factor, or on
  // units unlike their parameter.
  Optimizer(std::vector<NamedParameter> parameters, double weight_decay, const NoDecay& no_decay,
            const LrFactor& lr_factor, const StepUnits& step_units, std::int64_t factors);

  // Writes the factors of parameter `i`, which is about to be updated with its own rate.
  virtual void write_factors(std::size_t i, double lr, double* factors) = 0;
  // Updates the parameters of one dtype, f32 or f64, that are given by their numbers.
  virtual void update(DType dtype, std::span<const std::size_t> chosen) = 0;

  // On the parameters' device: what write_factors() wrote for parameter `i`.
  const double* factors(std::size_t i) const;

  // What the steps of parameter `i` are relative to.
  const StepUnit& unit(std::size_t i) const { return units_[i]; }
  // The decay of parameter `i`: weight_decay, or 0 where excluded.
  double weight_decay(std::size_t i) const { return weight_decays_[i]; }
  // One zero tensor like each parameter.
  std::vector<Tensor> zeros_like_parameters() const;
  Device device() const { return factors_.device(); }

 private:
  bool has_gradient(std::size_t i) const;

  std::vector<NamedParameter> parameters_;
  std::vector<Shape> shapes_;  // of the parameters, when the optimizer was made
  std::vector<double> weight_decays_;
  std::vector<double> lr_factors_;
  std::vector<StepUnit> units_;
  Tensor host_factors_;  // f64 [parameters, factors]
  Tensor factors_;       // the same where the parameters are
};

struct SgdOptions {
  double momentum = 0.0;  // in [0, 1)
  bool nesterov = false;  // needs momentum
  double weight_decay = 0.0;
  NoDecay no_decay = is_bias_or_norm;
  LrFactor lr_factor{};
  StepUnits step_units{};  // no step moves an element by more than its rate times count * size
};

// Stochastic gradient descent, PyTorch's formulas (dampening 0). State: "<parameter>/momentum".
// Source: Sutskever et al., "On the importance of initialization and momentum", ICML 2013.
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<NamedParameter> parameters, SgdOptions options);
  // All of a module's parameters.
  template <std::derived_from<Module> M>
  explicit Sgd(const M& module, SgdOptions options = {})
      : Sgd(module.named_parameters(), std::move(options)) {}
  std::string type_name() const override { return "sgd"; }
  std::vector<NamedBuffer> named_state() const override;

 private:
  void write_factors(std::size_t i, double lr, double* factors) override;
  void update(DType dtype, std::span<const std::size_t> chosen) override;

  SgdOptions options_;
  std::vector<Tensor> momentum_;  // empty without momentum
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  NoDecay no_decay = is_bias_or_norm;
  LrFactor lr_factor{};
  StepUnits step_units{};  // steps are multiplied by count * size
};

// Adam with decoupled weight decay. State: "<parameter>/exp_avg", "<parameter>/exp_avg_sq" and
// "<parameter>/step" (i64, rank 0, on the CPU: updates done).
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<NamedParameter> parameters, AdamWOptions options);
  template <std::derived_from<Module> M>
  explicit AdamW(const M& module, AdamWOptions options = {})
      : AdamW(module.named_parameters(), std::move(options)) {}
  std::string type_name() const override { return "adamw"; }
  std::vector<NamedBuffer> named_state() const override;

 private:
  void write_factors(std::size_t i, double lr, double* factors) override;
  void update(DType dtype, std::span<const std::size_t> chosen) override;

  AdamWOptions options_;
  std::vector<Tensor> exp_avg_;
  std::vector<Tensor> exp_avg_sq_;
  std::vector<Tensor> steps_;
};

}  // namespace steelyard
