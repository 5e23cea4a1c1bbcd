#include "steelyard/qat/layers/qat_moves.h"

#include <algorithm>
#include <array>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/qat/quantizers/code_function.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

using Gradient = CodeFunction::Gradient;

// The moved codes as a variable, recorded with what the operation is.
template <typename T>
Variable moved(const Variable& x, Tensor codes, const char* name, T what,
               const Gradient& gradient) {
  Variable y = make_variable(with_codes(*quantized(x), std::move(codes)));
  if (!should_record({x})) return y;
  return record(std::move(y),
                std::make_shared<DescribedCodeFunction<T>>(name, std::move(what), gradient,
                                                           std::vector<Tensor>{}),
                {x});
}

// A tensor of zero points.
Tensor of_zero_points(const QuantizedValue& like, const Shape& shape) {
  const Tensor codes = Tensor::empty(shape, like.codes.dtype(), like.codes.device());
  const Tensor none = empty_mask(codes.size(), codes.device());
  none.fill(0);
  visit_all_codes(codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(codes.device(),
        kernels::DropCodes<Code>{.n = codes.size(),
                                 .mask = none.data<std::uint8_t>(),
                                 .x = codes.data<Code>(),
                                 .zero_point = like.qparams.zero_point.data<std::int32_t>(),
                                 .codes = codes.data<Code>()});
  });
  return codes;
}

// A layer that does the same with codes and floats.
class QatMove : public Module {
 public:
  using Move = std::function<Variable(const Variable&)>;
  QatMove(std::string name, Move of_codes, Move of_floats)
      : name_(std::move(name)), of_codes_(std::move(of_codes)), of_floats_(std::move(of_floats)) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    return quantized(x) ? of_codes_(x) : of_floats_(x);
  }
  std::string type_name() const override { return name_; }

 private:
  std::string name_;
  Move of_codes_, of_floats_;
};

std::shared_ptr<Module> move_of(const char* name, QatMove::Move of_codes, QatMove::Move of_floats) {
  return std::make_shared<QatMove>(name, std::move(of_codes), std::move(of_floats));
}

}  // namespace

Variable permute_codes(const Variable& x, const std::vector<std::int64_t>& order) {
  ops::require_permutation("quantized_permute", x.shape(), order);
  const std::vector<std::int64_t> strides = ops::row_major_strides(x.shape());
  ops::Part part;
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    part.shape.push_back(x.shape()[from]);
    part.strides.push_back(strides[from]);
    inverse[from] = static_cast<std::int64_t>(i);
  }
  const auto gradient = [inverse](const Tensor& grad, const Shape&, const std::vector<Tensor>&) {
    const NoGradGuard no_grad;
    return permute(Variable(grad), inverse).value();
  };
  return moved(x, ops::gathered("quantized_permute", quantized(x)->codes, part),
               "quantized_permute", order, gradient);
}

Variable reshape_codes(const Variable& x, const Shape& shape) {
  const auto gradient = [](const Tensor& grad, const Shape& input, const std::vector<Tensor>&) {
    return grad.reshape(input);
  };
  return moved(x, quantized(x)->codes.reshape(shape), "quantized_reshape", shape, gradient);
}

Variable slice_codes(const Variable& x, const std::vector<TakenAxis>& axes) {
  ops::require_inside("quantized_slice", x.shape(), axes);
  const auto gradient = [axes](const Tensor& grad, const Shape& input, const std::vector<Tensor>&) {
    Tensor whole = Tensor::zeros(input, grad.dtype(), grad.device());
    ops::scatter("quantized_slice", grad, whole, ops::part_of(input, axes));
    return whole;
  };
  return moved(x,
               ops::gathered("quantized_slice", quantized(x)->codes, ops::part_of(x.shape(), axes)),
               "quantized_slice", axes, gradient);
}

Variable pad_codes(const Variable& x, const std::vector<std::int64_t>& before,
                   const std::vector<std::int64_t>& after) {
  ops::require_border("quantized_pad", x.shape(), before, after);
  Shape whole;
  std::vector<TakenAxis> inner;
  for (std::size_t i = 0; i < before.size(); ++i) {
    inner.push_back({before[i], x.shape()[i], 1});
    whole.push_back(before[i] + x.shape()[i] + after[i]);
  }
  ops::require_inside("quantized_pad", whole, inner);
  const Tensor codes = of_zero_points(*quantized(x), whole);
  ops::scatter("quantized_pad", quantized(x)->codes, codes, ops::part_of(whole, inner));
  const auto gradient = [inner](const Tensor& grad, const Shape&, const std::vector<Tensor>&) {
    return ops::gathered("quantized_pad", grad, ops::part_of(grad.shape(), inner));
  };
  return moved(x, codes, "quantized_pad", Border{.before = before}, gradient);
}

Variable repeat_codes(const Variable& x, std::int64_t rows, std::int64_t columns) {
  const auto axis = [&](std::int64_t repeats, std::int64_t extent) {
    return ResizedAxis{.repeats = repeats, .inputs = extent, .outputs = extent * repeats};
  };
  const auto gradient = [=](const Tensor& grad, const Shape&, const std::vector<Tensor>&) {
    return repeated_gradient(grad, rows, columns);
  };
  return moved(x, repeated(quantized(x)->codes, rows, columns), "quantized_resize",
               std::array{axis(rows, x.dim(1)), axis(columns, x.dim(2))}, gradient);
}

Variable under_shape(const Variable& x, const Shape& shape) {
  return quantized(x) ? reshape_codes(x, shape) : reshape(x, shape);
}

Variable part_of(const Variable& x, const std::vector<TakenAxis>& axes) {
  return quantized(x) ? slice_codes(x, axes) : slice(x, axes);
}

QuantizedForm permute_form() {
  return form_of<Permute>(
      "Permute", FormKind::kPassesThrough,
      [](const Permute& layer, const FormRequest&) -> std::shared_ptr<Module> {
        return move_of(
            "QatPermute",
            [order = layer.order()](const Variable& x) { return permute_codes(x, order); },
            [order = layer.order()](const Variable& x) { return permute(x, order); });
      });
}

QuantizedForm reshape_form() {
  return form_of<Reshape>(
      "Reshape", FormKind::kPassesThrough,
      [](const Reshape& layer, const FormRequest&) -> std::shared_ptr<Module> {
        const auto shape_for = [like = std::make_shared<Reshape>(layer.shape())](
                                   const Shape& input) { return like->shape_for(input); };
        return move_of(
            "QatReshape",
            [shape_for](const Variable& x) { return reshape_codes(x, shape_for(x.shape())); },
            [shape_for](const Variable& x) { return reshape(x, shape_for(x.shape())); });
      });
}

QuantizedForm slice_form() {
  return form_of<Slice>(
      "Slice", FormKind::kPassesThrough,
      [](const Slice& layer, const FormRequest&) -> std::shared_ptr<Module> {
        const auto taken_of = [like = std::make_shared<Slice>(layer.axis(), layer.taken())](
                                  const Shape& input) { return like->taken_of(input); };
        return move_of(
            "QatSlice",
            [taken_of](const Variable& x) { return slice_codes(x, taken_of(x.shape())); },
            [taken_of](const Variable& x) { return slice(x, taken_of(x.shape())); });
      });
}

QuantizedForm pad_form() {
  QuantizedForm form =
      form_of<Pad>("Pad", FormKind::kPassesThrough,
                   [](const Pad& layer, const FormRequest&) -> std::shared_ptr<Module> {
                     const auto& before = layer.before();
                     const auto& after = layer.after();
                     return move_of(
                         "QatPad", [=](const Variable& x) { return pad_codes(x, before, after); },
                         [=](const Variable& x) { return pad(x, before, after); });
                   });
  form.matches = [](const Module& module) {
    const auto* layer = dynamic_cast<const Pad*>(&module);
    const auto adds = [](const std::vector<std::int64_t>& border) {
      return std::all_of(border.begin(), border.end(), [](std::int64_t n) { return n >= 0; });
    };
    return layer != nullptr && layer->value() == 0 && adds(layer->before()) && adds(layer->after());
  };
  return form;
}

QuantizedForm resize_form() {
  QuantizedForm form = form_of<Resize>(
      "Resize", FormKind::kPassesThrough,
      [](const Resize& layer, const FormRequest&) -> std::shared_ptr<Module> {
        const ResizedAxis& height = layer.height();
        const ResizedAxis& width = layer.width();
        return move_of(
            "QatResize",
            [=](const Variable& x) { return repeat_codes(x, height.repeats, width.repeats); },
            [=](const Variable& x) { return resize(x, height, width); });
      });
  form.matches = [](const Module& module) {
    const auto* layer = dynamic_cast<const Resize*>(&module);
    return layer != nullptr && layer->height().repeats > 0 && layer->width().repeats > 0;
  };
  return form;
}

}  // namespace steelyard::qat
