// Fully connected layer.
#pragma once

#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct LinearOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool bias = true;
  static constexpr auto fields() {
    return std::tuple(field("in_features", &LinearOptions::in_features),
                      field("out_features", &LinearOptions::out_features),
                      field("bias", &LinearOptions::bias));
  }
};

// y[..., out] = x[..., in] weight^T + bias. Parameters: weight [out, in], bias [out].
class Linear : public Module, public RowLayer {
 public:
  // Throws std::invalid_argument on sizes below 1.
  Linear(const LinearOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Linear"; }
  std::string description() const override;

  const LinearOptions& options() const { return options_; }
  const Variable& weight() const { return weight_; }
  // Undefined without a bias.
  const Variable& bias() const { return bias_; }

 private:
  LinearOptions options_;
  Variable weight_;
  Variable bias_;
};

}  // namespace steelyard
