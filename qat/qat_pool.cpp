#include "steelyard/qat/qat_pool.h"

#include "steelyard/layers/pooling.h"
#include "steelyard/qat/code_ops.h"

namespace steelyard::qat {

QatAvgPool2d::QatAvgPool2d(const Pool2dGeometry& geometry, const QuantizerConfig& output)
    : geometry_(geometry), output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatAvgPool2d::forward(const Variable& x, ForwardContext& context) {
  if (quantized(x) && output_->quantizing()) {
    return avg_pool2d_codes(x, geometry_, *output_, context);
  }
  return output_->forward(avg_pool2d(x, geometry_), context);
}

QatGlobalAvgPool::QatGlobalAvgPool(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatGlobalAvgPool::forward(const Variable& x, ForwardContext& context) {
  if (quantized(x) && output_->quantizing()) return global_avg_pool_codes(x, *output_, context);
  return output_->forward(global_avg_pool(x), context);
}

QuantizedForm avg_pool2d_form() {
  QuantizedForm form = form_of<AvgPool2d>(
      "AvgPool2d", FormKind::kComputes,
      [](const AvgPool2d& pool, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatAvgPool2d>(pool.options().geometry, request.output);
      });
  form.note = "of the integer average";
  form.refusal = [](const Module& pool, const QuantizerConfig&) -> std::string {
    const bool counts_padding = dynamic_cast<const AvgPool2d&>(pool).options().count_include_pad;
    return counts_padding ? "" : "windows of unequal counts";
  };
  return form;
}

QuantizedForm global_avg_pool_form() {
  QuantizedForm form = form_of<GlobalAvgPool>(
      "GlobalAvgPool", FormKind::kComputes,
      [](const GlobalAvgPool&, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatGlobalAvgPool>(request.output);
      });
  form.note = "of the integer average";
  return form;
}

}  // namespace steelyard::qat
