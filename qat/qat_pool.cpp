#include "steelyard/qat/qat_pool.h"

#include "steelyard/qat/code_ops.h"

namespace steelyard::qat {

QatAvgPool2d::QatAvgPool2d(const Pool2dGeometry& geometry, const QuantizerConfig& output)
    : geometry_(geometry),
      output_(std::make_shared<FakeQuantize>(output, QuantizerRole::kActivation)) {
  register_child("output_quantizer", output_);
}

Variable QatAvgPool2d::forward(const Variable& x, ForwardContext& context) {
  if (quantized(x) && output_->quantizing()) {
    return avg_pool2d_codes(x, geometry_, *output_, context);
  }
  return output_->forward(avg_pool2d(x, geometry_), context);
}

QatGlobalAvgPool::QatGlobalAvgPool(const QuantizerConfig& output)
    : output_(std::make_shared<FakeQuantize>(output, QuantizerRole::kActivation)) {
  register_child("output_quantizer", output_);
}

Variable QatGlobalAvgPool::forward(const Variable& x, ForwardContext& context) {
  if (quantized(x) && output_->quantizing()) return global_avg_pool_codes(x, *output_, context);
  return output_->forward(global_avg_pool(x), context);
}

}  // namespace steelyard::qat
