#include "steelyard/qat/layers/qat_pool.h"

#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/one_row.h"
#include "steelyard/qat/layers/code_ops.h"
#include "steelyard/qat/layers/pass_through.h"
#include "steelyard/qat/layers/qat_moves.h"

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

Variable QatFixedAvgPool2d::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? fixed_avg_pool2d_codes(x, geometry_) : avg_pool2d(x, geometry_);
}

QatGlobalAvgPool::QatGlobalAvgPool(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatGlobalAvgPool::forward(const Variable& x, ForwardContext& context) {
  const bool sequence = x.shape().size() == 3;
  const Variable image = sequence ? under_shape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}) : x;
  if (quantized(x) && output_->quantizing()) return global_avg_pool_codes(image, *output_, context);
  return output_->forward(global_avg_pool(image), context);
}

QatPool1d::QatPool1d(std::string type_name, std::shared_ptr<Module> pool)
    : type_name_(std::move(type_name)), pool_(std::move(pool)) {
  register_child("", pool_);
}

Variable QatPool1d::forward(const Variable& x, ForwardContext& context) {
  return on_one_row(
      type_name_, x, [&](const Variable& row) { return pool_->forward(row, context); },
      under_shape);
}

QuantizedForm max_pool1d_form() {
  return form_of<MaxPool1d>(
      "MaxPool1d", FormKind::kPassesThrough,
      [](const MaxPool1d& pool, const FormRequest&) -> std::shared_ptr<Module> {
        return std::make_shared<QatPool1d>("QatMaxPool1d",
                                           std::make_shared<QatMaxPool2d>(pool.options().on_row()));
      });
}

QuantizedForm avg_pool1d_form() {
  QuantizedForm form = form_of<AvgPool1d>(
      "AvgPool1d", FormKind::kComputes,
      [](const AvgPool1d& pool, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatPool1d>(
            "QatAvgPool1d",
            std::make_shared<QatAvgPool2d>(pool.options().on_row(), request.output));
      });
  form.note = "of the integer average";
  return form;
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

QuantizedForm fixed_avg_pool2d_form() {
  QuantizedForm form =
      form_of<AvgPool2d>("AvgPool2d", FormKind::kPassesThrough,
                         [](const AvgPool2d& pool, const FormRequest&) -> std::shared_ptr<Module> {
                           return std::make_shared<QatFixedAvgPool2d>(pool.options().geometry);
                         });
  form.profiles = FormProfiles::kFixedPoint;
  form.refusal = [](const Module& pool, const QuantizerConfig&) -> std::string {
    const auto& padding = dynamic_cast<const AvgPool2d&>(pool).options().geometry.padding;
    return padding == std::array<std::int64_t, 2>{0, 0} ? "" : "with padding";
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
