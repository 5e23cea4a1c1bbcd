#include "steelyard/framework/ops/products/gru.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/products/recurrent.h"
#include "steelyard/framework/ops/reductions/column_sums.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/gru/gru.h"

namespace steelyard {
namespace {

struct GruSizes {
  std::int64_t batch = 0, length = 0, features = 0, units = 0;

  std::int64_t samples() const { return batch * length; }  // of all steps
  Shape gates() const { return {length, batch, 4 * units}; }
  Shape states() const { return {length + 1, batch, units}; }
  Shape output() const { return {batch, length, units}; }
};

// What forward computes and backward needs: steps are in the order of computation.
struct GruPass {
  Tensor gates;   // [L, N, 4 H]
  Tensor states;  // [L + 1, N, H], those before the first step first
};

template <typename T>
Tensor gru_forward(const GruSizes& s, const GruOptions& options, const Tensor& x,
                   const GruParameters& p, GruPass& pass) {
  const DType dtype = x.dtype();
  const Device device = x.device();
  const std::int64_t gates = 3 * s.units;
  const Tensor sums = Tensor::empty({s.batch, s.length, gates}, dtype, device);
  ops::multiply(x, {.m = s.samples(), .n = gates, .k = s.features, .transpose_b = true},
                x.data<T>(), p.weight.value().data<T>(), sums.data<T>());
  run(device, kernels::AddBias<T>{.rows = s.samples(),
                                  .channels = gates,
                                  .x = sums.data<T>(),
                                  .bias = p.bias.value().data<T>(),
                                  .y = sums.data<T>()});
  pass = {Tensor::empty(s.gates(), dtype, device), Tensor::empty(s.states(), dtype, device)};
  ops::scatter("gru", ops::repeated("gru", p.output.value(), s.batch), pass.states,
               {.shape = {s.batch, s.units}, .first = 0, .strides = {s.units, 1}});
  const Tensor y = Tensor::empty(s.output(), dtype, device);
  const Tensor of_state = Tensor::empty({s.batch, gates}, dtype, device);
  for (std::int64_t step = 0; step < s.length; ++step) {
    const std::int64_t t = options.reverse ? s.length - 1 - step : step;
    ops::multiply(x, {.m = s.batch, .n = gates, .k = s.units, .transpose_b = true},
                  ops::step_of<T>(pass.states, step), p.recurrent.value().data<T>(),
                  of_state.data<T>());
    run(device, kernels::GruStep<T>{.rows = s.batch,
                                    .columns = s.units,
                                    .of_input = sums.data<T>() + t * gates,
                                    .input_stride = s.length * gates,
                                    .of_state = of_state.data<T>(),
                                    .recurrent_bias = p.recurrent_bias.value().data<T>(),
                                    .before = ops::step_of<T>(pass.states, step),
                                    .gates = ops::step_of<T>(pass.gates, step),
                                    .state = ops::step_of<T>(pass.states, step + 1),
                                    .y = y.data<T>() + t * s.units,
                                    .y_stride = s.length * s.units});
  }
  return y;
}

class GruFunction : public Function, public Describes<GruOptions> {
 public:
  GruFunction(const GruSizes& sizes, const GruOptions& options, const Variable& x,
              const GruParameters& p, const GruPass& pass)
      : sizes_(sizes), options_(options) {
    for (const Tensor& tensor :
         {x.value(), p.weight.value(), p.recurrent.value(), pass.gates, pass.states}) {
      save(tensor);
    }
  }
  std::string name() const override { return "gru"; }
  GruOptions described() const override { return options_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "gru",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_y) const {
    const GruSizes& s = sizes_;
    const Tensor &x = saved()[0], &weight = saved()[1], &recurrent = saved()[2],
                 &gates = saved()[3], &states = saved()[4];
    const DType dtype = grad_y.dtype();
    const Device device = grad_y.device();
    const std::int64_t width = 3 * s.units;
    const Tensor grad_state = Tensor::zeros({s.batch, s.units}, dtype, device);
    const Tensor grad_kept = Tensor::zeros({s.batch, s.units}, dtype, device);
    // Gradients of the two products: by steps as computed, and by samples.
    const Tensor grad_steps = Tensor::empty({s.length, s.batch, width}, dtype, device);
    const Tensor grad_sums = Tensor::empty({s.batch, s.length, width}, dtype, device);
    for (std::int64_t step = s.length; step-- > 0;) {
      const std::int64_t t = options_.reverse ? s.length - 1 - step : step;
      run(device, kernels::GruStepBackward<T>{.rows = s.batch,
                                              .columns = s.units,
                                              .gates = ops::step_of<T>(gates, step),
                                              .before = ops::step_of<T>(states, step),
                                              .grad_y = grad_y.data<T>() + t * s.units,
                                              .grad_y_stride = s.length * s.units,
                                              .grad_state = grad_state.data<T>(),
                                              .grad_kept = grad_kept.data<T>(),
                                              .grad_product = ops::step_of<T>(grad_steps, step),
                                              .grad_input = grad_sums.data<T>() + t * width,
                                              .grad_input_stride = s.length * width});
      ops::multiply(x, {.m = s.batch, .n = s.units, .k = width}, ops::step_of<T>(grad_steps, step),
                    recurrent.data<T>(), grad_state.data<T>());
    }
    std::vector<Tensor> grads(inputs().size());
    if (needs_grad(0)) {
      grads[0] = Tensor::empty(x.shape(), dtype, device);
      ops::multiply(x, {.m = s.samples(), .n = s.features, .k = width}, grad_sums.data<T>(),
                    weight.data<T>(), grads[0].data<T>());
    }
    if (needs_grad(1)) {
      grads[1] = Tensor::empty(weight.shape(), dtype, device);
      ops::multiply(x, {.m = width, .n = s.features, .k = s.samples(), .transpose_a = true},
                    grad_sums.data<T>(), x.data<T>(), grads[1].data<T>());
    }
    if (needs_grad(2)) {
      grads[2] = Tensor::empty(recurrent.shape(), dtype, device);
      ops::multiply(x, {.m = width, .n = s.units, .k = s.samples(), .transpose_a = true},
                    grad_steps.data<T>(), states.data<T>(), grads[2].data<T>());
    }
    if (needs_grad(3)) grads[3] = ops::column_sums<T>(grad_sums);
    if (needs_grad(4)) {  // the last third
      grads[4] = ops::gathered("gru", ops::column_sums<T>(grad_steps),
                               {.shape = {s.units}, .first = 2 * s.units, .strides = {1}});
    }
    if (needs_grad(5)) {
      const Tensor both = Tensor::empty(grad_state.shape(), dtype, device);
      run(device, kernels::Add<T>{.n = both.size(),
                                  .a = grad_state.data<T>(),
                                  .b = grad_kept.data<T>(),
                                  .y = both.data<T>()});
      grads[5] = ops::column_sums<T>(both);
    }
    return grads;
  }

  GruSizes sizes_;
  GruOptions options_;
};

GruSizes checked_gru_sizes(const Variable& x, const GruParameters& p) {
  ops::require_defined("gru", "an input", x);
  if (x.shape().size() != 3 || x.dim(1) < 1) {
    ops::fail("gru", "an input [N, L, I] with L of at least 1", shape_string(x.shape()));
  }
  ops::require_defined("gru", "recurrent weights", p.recurrent);
  const Shape& recurrent = p.recurrent.shape();
  if (recurrent.size() != 2 || recurrent[0] != 3 * recurrent[1]) {
    ops::fail("gru", "recurrent weights [3 H, H]", shape_string(recurrent));
  }
  const std::int64_t units = recurrent[1];
  ops::require_defined("gru", "weights", p.weight);
  if (p.weight.shape() != Shape{3 * units, x.dim(2)}) {
    ops::fail("gru", "weights " + shape_string({3 * units, x.dim(2)}),
              shape_string(p.weight.shape()));
  }
  for (const auto& [what, v, size] : {std::tuple{"a bias", &p.bias, 3 * units},
                                      std::tuple{"a recurrent bias", &p.recurrent_bias, units},
                                      std::tuple{"a first output", &p.output, units}}) {
    ops::require_defined("gru", what, *v);
    ops::require_vector("gru", what, size, *v);
  }
  for (const Variable* v : {&p.weight, &p.recurrent, &p.bias, &p.recurrent_bias, &p.output}) {
    ops::require_same_dtype("gru", "parameters", x, *v);
  }
  return {.batch = x.dim(0), .length = x.dim(1), .features = x.dim(2), .units = units};
}

}  // namespace

Variable gru(const Variable& x, const GruParameters& p, const GruOptions& options) {
  const GruSizes sizes = checked_gru_sizes(x, p);
  if (shapes_only()) return Variable(Tensor::zeros(sizes.output(), x.dtype(), x.value().device()));
  GruPass pass;
  Tensor y = visit_floating(x.dtype(), "gru", [&](auto zero) {
    return gru_forward<decltype(zero)>(sizes, options, x.value(), p, pass);
  });
  const std::vector<Variable> inputs{x, p.weight, p.recurrent, p.bias, p.recurrent_bias, p.output};
  if (!should_record(inputs)) return Variable(y);
  return record(y, std::make_shared<GruFunction>(sizes, options, x, p, pass), inputs);
}

}  // namespace steelyard
