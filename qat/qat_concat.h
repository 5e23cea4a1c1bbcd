// Joined branches whose output has a quantizer of its own.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/qat/fake_quantize.h"

namespace steelyard::qat {

// The quantized variables joined along their last dimension, on the grid of `output`: each code is
// dequantized and quantized anew, a copy where scale and zero point are the output's
// (docs/numerics.md).
Variable concat_codes(const std::vector<Variable>& inputs, FakeQuantize& output,
                      ForwardContext& context);

// y = quantize(concat(branch1(x), branch2(x), ...)); a float branch makes the join a float one.
class QatConcat : public Module {
 public:
  // Branches and their names are those of `concat`.
  QatConcat(const Module& concat, const QuantizerConfig& output);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatConcat"; }

 private:
  std::vector<Slot*> branches_;
  std::shared_ptr<FakeQuantize> output_;
};

}  // namespace steelyard::qat
