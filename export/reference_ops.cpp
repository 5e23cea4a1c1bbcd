#include "steelyard/export/reference_ops.h"

#include <algorithm>
#include <cmath>

#include "steelyard/export/interpreter.h"
#include "steelyard/export/reference_support.h"

namespace steelyard::deploy {
namespace {

using kernels::Affine;

void quantize(const Operands& op) {
  const Affine<float> grid = grid_of(*op.output_value().quantization);
  const float* x = op.input(0).data<float>();
  fill_codes(op.output(), [&](std::int64_t i) { return kernels::quantize_value(x[i], grid); });
}

kernels::AddGrid add_grid(const Value& value) {
  const Quantization& q = *value.quantization;
  return {q.scale, static_cast<float>(q.zero_point), q.dtype == DType::kI8 ? -128.0F : 0.0F};
}

void add(const Operands& op) {
  if (!op.output_value().quantization) {
    const Tensor a = dequantized(op.input_value(0), op.input(0));
    const Tensor b = dequantized(op.input_value(1), op.input(1));
    fill_floats(op.output(),
                [&](std::int64_t i) { return a.data<float>()[i] + b.data<float>()[i]; });
    return;
  }
  const Affine<float> grid = output_grid(op);
  const auto rule = kernels::make_add_requantizer(
      add_grid(op.input_value(0)), add_grid(op.input_value(1)), add_grid(op.output_value()));
  fill_codes(op.output(), [&](std::int64_t i) {
    const float a = static_cast<float>(code_at(op.input(0), i));
    const float b = static_cast<float>(code_at(op.input(1), i));
    return kernels::to_integer_code(kernels::requantized_add_code(a, b, rule), grid);
  });
}

// Input `part`, on the output's grid or as floats, at `first` of every row of the output.
void join_part(const Operands& op, std::size_t part, std::int64_t first) {
  const Tensor real = dequantized(op.input_value(part), op.input(part));
  const Tensor& out = op.output();
  const std::int64_t width = real.dim(-1);
  const auto& q = op.output_value().quantization;
#pragma omp parallel for
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const std::int64_t to = i / width * out.dim(-1) + first + i % width;
    const float x = real.data<float>()[i];
    if (q) {
      set_code(out, to, kernels::quantize_value(x, grid_of(*q)));
    } else {
      out.data<float>()[to] = x;
    }
  }
}

void join(const Operands& op) {
  std::int64_t first = 0;
  for (std::size_t part = 0; part < op.node.inputs.size(); ++part) {
    join_part(op, part, first);
    first += op.input(part).dim(-1);
  }
}

void activate(const Operands& op, kernels::Activation activation) {
  const Tensor& x = op.input(0);
  if (const auto& q = op.output_value().quantization) {
    const kernels::CodeRange left =
        kernels::activation_code_range(activation, q->range, q->scale, q->zero_point);
    fill_codes(op.output(),
               [&](std::int64_t i) { return std::clamp(code_at(x, i), left.qmin, left.qmax); });
    return;
  }
  const float top = activation == kernels::Activation::kRelu6 ? 6.0F : INFINITY;
  fill_floats(op.output(), [&](std::int64_t i) {
    return kernels::clamp_keeping_nan(x.data<float>()[i], 0.0F, top);
  });
}

// Calls f(index of the output, image's first pixel, output pixel's row and column, channel).
template <typename F>
void for_each_window(const Operands& op, const Windows& windows, const F& f) {
  const std::int64_t images = op.input(0).dim(0);
#pragma omp parallel for
  for (std::int64_t row = 0; row < images * windows.out_h; ++row) {
    const std::int64_t image = row / windows.out_h * windows.in_h * windows.in_w;
    for (std::int64_t ow = 0; ow < windows.out_w; ++ow) {
      for (std::int64_t c = 0; c < windows.channels; ++c) {
        f((row * windows.out_w + ow) * windows.channels + c, image, row % windows.out_h, ow, c);
      }
    }
  }
}

void max_pool(const Operands& op) {
  const Windows windows = windows_of(op);
  const Tensor& x = op.input(0);
  const bool codes = op.output_value().quantization.has_value();
  for_each_window(
      op, windows,
      [&](std::int64_t i, std::int64_t image, std::int64_t oh, std::int64_t ow, std::int64_t c) {
        float largest = -INFINITY;
        windows.for_each_tap(oh, ow, [&](std::int64_t, std::int64_t pixel) {
          const std::int64_t at = (image + pixel) * windows.channels + c;
          largest =
              std::max(largest, codes ? static_cast<float>(code_at(x, at)) : x.data<float>()[at]);
        });
        if (codes) {
          set_code(op.output(), i, static_cast<std::int32_t>(largest));
        } else {
          op.output().data<float>()[i] = largest;
        }
      });
}

void average_pool(const Operands& op) {
  const Windows windows = windows_of(op);
  const Tensor& x = op.input(0);
  const std::int64_t count = windows.kernel[0] * windows.kernel[1];
  const auto each = [&](const auto& read, const auto& take) {
    for_each_window(
        op, windows,
        [&](std::int64_t i, std::int64_t image, std::int64_t oh, std::int64_t ow, std::int64_t c) {
          decltype(read(std::int64_t{})) sum = 0;
          windows.for_each_tap(oh, ow, [&](std::int64_t, std::int64_t pixel) {
            sum += read((image + pixel) * windows.channels + c);
          });
          take(i, sum);
        });
  };
  if (!op.output_value().quantization) {
    each([&](std::int64_t i) { return static_cast<double>(x.data<float>()[i]); },
         [&](std::int64_t i, double sum) {
           op.output().data<float>()[i] = static_cast<float>(sum / static_cast<double>(count));
         });
    return;
  }
  const Quantization& in = *op.input_value(0).quantization;
  const Affine<float> grid = grid_of(*op.output_value().quantization);
  const float multiplier = op.node.op == Op::kGlobalAvgPool
                               ? kernels::global_average_multiplier(in.scale, count, grid.scale)
                               : kernels::window_average_multiplier(in.scale, count, grid.scale);
  each([&](std::int64_t i) { return code_at(x, i) - in.zero_point; },
       [&](std::int64_t i, std::int32_t sum) {
         const float code = kernels::requantized_code(sum, multiplier, grid.zero_point);
         set_code(op.output(), i, kernels::to_integer_code(code, grid));
       });
}

void flatten(const Operands& op) {
  const Shape& in = op.input_value(0).shape;
  const std::int64_t channels = in.size() == 3 ? in[2] : shape_size(in);
  const std::int64_t pixels = channels == 0 ? 0 : shape_size(in) / channels;
  const std::int64_t size = pixels * channels;
  const auto source = [&](std::int64_t i) {
    const std::int64_t c = i % size / pixels;
    return i / size * size + i % pixels * channels + c;
  };
  const Tensor& x = op.input(0);
  if (op.output_value().quantization) {
    fill_codes(op.output(), [&](std::int64_t i) { return code_at(x, source(i)); });
  } else {
    fill_floats(op.output(), [&](std::int64_t i) { return x.data<float>()[source(i)]; });
  }
}

}  // namespace

Tensor dequantized(const Value& value, const Tensor& tensor) {
  if (!value.quantization) return tensor;
  const Quantization& q = *value.quantization;
  Tensor real = Tensor::empty(tensor.shape());
  fill_floats(real, [&](std::int64_t i) {
    return kernels::dequantize_code(static_cast<float>(code_at(tensor, i)),
                                    static_cast<float>(q.zero_point), q.scale);
  });
  return real;
}

void run_reference(const Operands& op) {
  if (op.output().size() == 0) return;
  switch (op.node.op) {
    case Op::kQuantize:
      return quantize(op);
    case Op::kLinear:
    case Op::kConv2d:
      return run_linear_map(op);
    case Op::kAdd:
      return add(op);
    case Op::kConcat:
      return join(op);
    case Op::kRelu:
      return activate(op, kernels::Activation::kRelu);
    case Op::kRelu6:
      return activate(op, kernels::Activation::kRelu6);
    case Op::kMaxPool2d:
      return max_pool(op);
    case Op::kAvgPool2d:
    case Op::kGlobalAvgPool:
      return average_pool(op);
    case Op::kFlatten:
      return flatten(op);
  }
}

}  // namespace steelyard::deploy
