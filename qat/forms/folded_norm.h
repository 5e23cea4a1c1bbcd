// A batch norm that the quantized layer before it computes, in each of the folding modes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

// The weight and bias of a quantized layer's product.
struct ProductOperands {
  Variable weight;       // quantized
  Variable bias;         // undefined for none
  Tensor deployed_bias;  // what the weights' scales leave room for; undefined for none
};

// Holds the norm's parameters and statistics under the norm's own names; as a module in its place
// it hands its input on, because the layer has done its work. In evaluation, and once the norm is
// frozen, a folding mode is one product with fold_batch_norm()'s weights and bias; with batch
// statistics that product is followed by normalize().
//
// A product with weights folded by gamma = 0 says nothing of the raw one. Where it must be
// recovered (one_convolution, and every mode while statistics are re-estimated), channels with
// |gamma| < kSmallestGamma are quantized as if gamma were that large: with a scale for each channel
// their codes are the same, and gamma can still grow.
class FoldedNorm : public Module {
 public:
  static constexpr float kSmallestGamma = 0x1p-10F;

  // Throws std::invalid_argument for BatchNormFold::kFrozen, which leaves no norm.
  FoldedNorm(std::shared_ptr<BatchNorm> norm, BatchNormFold mode);

  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "FoldedNorm"; }

  BatchNorm& norm() const { return *norm_; }
  BatchNormFold mode() const { return mode_; }
  // Batch statistics come from the quantized weights, in every mode.
  void set_reestimating(bool on) { reestimating_ = on; }

  // The operands of the product in this pass, of a layer with these parameters.
  ProductOperands operands(const Variable& weight, const Variable& bias,
                           const ForwardContext& context) const;
  // What the weights of each channel are multiplied with in evaluation, where the norm is folded.
  std::vector<double> factors() const;
  // Whether normalize() follows that product, instead of the activation.
  bool normalizes(const ForwardContext& context) const;
  // `raw_product` computes the float product with the layer's own weight, without bias.
  Variable normalize(const Variable& product, const Variable& bias,
                     const std::function<Variable()>& raw_product, ForwardContext& context) const;

 private:
  bool recovers(const BatchNormState& state) const;
  Tensor safe_gamma() const;

  std::shared_ptr<BatchNorm> norm_;
  BatchNormFold mode_;
  bool reestimating_ = false;
};

}  // namespace steelyard::qat
