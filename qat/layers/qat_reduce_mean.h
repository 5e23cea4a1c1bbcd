// ReduceMean on codes: the mean over dimensions that lie next to each other, as an average pool.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// Codes are summed as integers, and the sum becomes the output's code as that of a window does
// (qat/layers/qat_pool.h). Dimensions of an image are averaged by windows of its height or width,
// others by windows of an image that has the same elements in the same order.
class QatReduceMean : public Module {
 public:
  // Axes in order, one after the other, without the batch's; they stay with size 1, or go.
  QatReduceMean(std::vector<std::int64_t> axes, bool keep, const QuantizerConfig& output);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatReduceMean"; }

 private:
  std::vector<std::int64_t> axes_;
  bool keep_;
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm reduce_mean_form();

}  // namespace steelyard::qat
