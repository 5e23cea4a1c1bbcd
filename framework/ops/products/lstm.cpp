#include "steelyard/framework/ops/products/lstm.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/products/recurrent.h"
#include "steelyard/framework/ops/reductions/column_sums.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/lstm/lstm.h"

namespace steelyard {
namespace {

struct Sizes {
  std::int64_t batch = 0, length = 0, features = 0, units = 0;
  std::int64_t rows() const { return length + (with_cell ? 1 : 0); }  // of the output
  bool with_cell = false;

  Shape gates() const { return {length, batch, 4 * units}; }
  Shape states() const { return {length + 1, batch, units}; }
  Shape output() const { return {batch, rows(), units}; }
};

// What forward computes and backward needs: steps are in the order of computation.
struct Pass {
  Tensor gates;   // [L, N, 4 H]
  Tensor states;  // [L + 1, N, H], those before the first step first
  Tensor cells;   // the same
};

ops::Part cell_rows(const Sizes& s) {
  return {
      .shape = {s.batch, s.units}, .first = s.length * s.units, .strides = {s.rows() * s.units, 1}};
}

template <typename T>
Tensor forward(const Sizes& s, const LstmOptions& options, const Tensor& x, const LstmParameters& p,
               Pass& pass) {
  const DType dtype = x.dtype();
  const Device device = x.device();
  const Tensor sums = Tensor::empty({s.batch, s.length, 4 * s.units}, dtype, device);
  ops::multiply(x,
                {.m = s.batch * s.length, .n = 4 * s.units, .k = s.features, .transpose_b = true},
                x.data<T>(), p.weight.value().data<T>(), sums.data<T>());
  run(device, kernels::AddBias<T>{.rows = s.batch * s.length,
                                  .channels = 4 * s.units,
                                  .x = sums.data<T>(),
                                  .bias = p.bias.value().data<T>(),
                                  .y = sums.data<T>()});
  pass = {Tensor::empty(s.gates(), dtype, device), Tensor::empty(s.states(), dtype, device),
          Tensor::empty(s.states(), dtype, device)};
  const ops::Part first{.shape = {s.batch, s.units}, .first = 0, .strides = {s.units, 1}};
  ops::scatter("lstm", ops::repeated("lstm", p.output.value(), s.batch), pass.states, first);
  ops::scatter("lstm", ops::repeated("lstm", p.cell.value(), s.batch), pass.cells, first);
  const Tensor y = Tensor::empty(s.output(), dtype, device);
  const Tensor of_state = Tensor::empty({s.batch, 4 * s.units}, dtype, device);
  for (std::int64_t step = 0; step < s.length; ++step) {
    const std::int64_t t = options.reverse ? s.length - 1 - step : step;
    ops::multiply(x, {.m = s.batch, .n = 4 * s.units, .k = s.units, .transpose_b = true},
                  ops::step_of<T>(pass.states, step), p.recurrent.value().data<T>(),
                  of_state.data<T>());
    run(device, kernels::LstmStep<T>{.rows = s.batch,
                                     .columns = s.units,
                                     .of_input = sums.data<T>() + t * 4 * s.units,
                                     .input_stride = s.length * 4 * s.units,
                                     .of_state = of_state.data<T>(),
                                     .before = ops::step_of<T>(pass.cells, step),
                                     .gates = ops::step_of<T>(pass.gates, step),
                                     .cell = ops::step_of<T>(pass.cells, step + 1),
                                     .state = ops::step_of<T>(pass.states, step + 1),
                                     .y = y.data<T>() + t * s.units,
                                     .y_stride = s.rows() * s.units});
  }
  if (s.with_cell) {
    const Tensor last = ops::gathered("lstm", pass.cells,
                                      {.shape = {s.batch, s.units},
                                       .first = s.length * s.batch * s.units,
                                       .strides = {s.units, 1}});
    ops::scatter("lstm", last, y, cell_rows(s));
  }
  return y;
}

class LstmFunction : public Function, public Describes<LstmOptions> {
 public:
  LstmFunction(const Sizes& sizes, const LstmOptions& options, const Variable& x,
               const LstmParameters& p, const Pass& pass)
      : sizes_(sizes), options_(options) {
    for (const Tensor& tensor :
         {x.value(), p.weight.value(), p.recurrent.value(), pass.gates, pass.states, pass.cells}) {
      save(tensor);
    }
  }
  std::string name() const override { return "lstm"; }
  LstmOptions described() const override { return options_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "lstm",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_y) const {
    const Sizes& s = sizes_;
    const Tensor &x = saved()[0], &weight = saved()[1], &recurrent = saved()[2],
                 &gates = saved()[3], &states = saved()[4], &cells = saved()[5];
    const DType dtype = grad_y.dtype();
    const Device device = grad_y.device();
    const Tensor grad_state = Tensor::zeros({s.batch, s.units}, dtype, device);
    const Tensor grad_cell = s.with_cell ? ops::gathered("lstm", grad_y, cell_rows(s))
                                         : Tensor::zeros({s.batch, s.units}, dtype, device);
    // Gradients of the gates' sums, by steps as computed and by samples.
    const Tensor grad_steps = Tensor::empty(gates.shape(), dtype, device);
    const Tensor grad_sums = Tensor::empty({s.batch, s.length, 4 * s.units}, dtype, device);
    for (std::int64_t step = s.length; step-- > 0;) {
      const std::int64_t t = options_.reverse ? s.length - 1 - step : step;
      run(device, kernels::LstmStepBackward<T>{.rows = s.batch,
                                               .columns = s.units,
                                               .gates = ops::step_of<T>(gates, step),
                                               .before = ops::step_of<T>(cells, step),
                                               .cell = ops::step_of<T>(cells, step + 1),
                                               .grad_y = grad_y.data<T>() + t * s.units,
                                               .grad_y_stride = s.rows() * s.units,
                                               .grad_state = grad_state.data<T>(),
                                               .grad_cell = grad_cell.data<T>(),
                                               .grad_sums = ops::step_of<T>(grad_steps, step),
                                               .grad_input = grad_sums.data<T>() + t * 4 * s.units,
                                               .grad_input_stride = s.length * 4 * s.units});
      ops::multiply(x, {.m = s.batch, .n = s.units, .k = 4 * s.units},
                    ops::step_of<T>(grad_steps, step), recurrent.data<T>(), grad_state.data<T>());
    }
    std::vector<Tensor> grads(inputs().size());
    const std::int64_t all = s.batch * s.length;
    if (needs_grad(0)) {
      grads[0] = Tensor::empty(x.shape(), dtype, device);
      ops::multiply(x, {.m = all, .n = s.features, .k = 4 * s.units}, grad_sums.data<T>(),
                    weight.data<T>(), grads[0].data<T>());
    }
    if (needs_grad(1)) {
      grads[1] = Tensor::empty(weight.shape(), dtype, device);
      ops::multiply(x, {.m = 4 * s.units, .n = s.features, .k = all, .transpose_a = true},
                    grad_sums.data<T>(), x.data<T>(), grads[1].data<T>());
    }
    if (needs_grad(2)) {
      grads[2] = Tensor::empty(recurrent.shape(), dtype, device);
      ops::multiply(x, {.m = 4 * s.units, .n = s.units, .k = all, .transpose_a = true},
                    grad_steps.data<T>(), states.data<T>(), grads[2].data<T>());
    }
    if (needs_grad(3)) grads[3] = ops::column_sums<T>(grad_sums);
    if (needs_grad(4)) grads[4] = ops::column_sums<T>(grad_state);
    if (needs_grad(5)) grads[5] = ops::column_sums<T>(grad_cell);
    return grads;
  }

  Sizes sizes_;
  LstmOptions options_;
};

Sizes checked_sizes(const Variable& x, const LstmParameters& p, const LstmOptions& options) {
  ops::require_defined("lstm", "an input", x);
  if (x.shape().size() != 3 || x.dim(1) < 1) {
    ops::fail("lstm", "an input [N, L, I] with L of at least 1", shape_string(x.shape()));
  }
  ops::require_defined("lstm", "recurrent weights", p.recurrent);
  const Shape& recurrent = p.recurrent.shape();
  if (recurrent.size() != 2 || recurrent[0] != 4 * recurrent[1]) {
    ops::fail("lstm", "recurrent weights [4 H, H]", shape_string(recurrent));
  }
  const std::int64_t units = recurrent[1];
  ops::require_defined("lstm", "weights", p.weight);
  if (p.weight.shape() != Shape{4 * units, x.dim(2)}) {
    ops::fail("lstm", "weights " + shape_string({4 * units, x.dim(2)}),
              shape_string(p.weight.shape()));
  }
  for (const auto& [what, v, size] :
       {std::tuple{"a bias", &p.bias, 4 * units}, std::tuple{"a first output", &p.output, units},
        std::tuple{"a first cell", &p.cell, units}}) {
    ops::require_defined("lstm", what, *v);
    ops::require_vector("lstm", what, size, *v);
  }
  for (const Variable* v : {&p.weight, &p.recurrent, &p.bias, &p.output, &p.cell}) {
    ops::require_same_dtype("lstm", "parameters", x, *v);
  }
  return {.batch = x.dim(0),
          .length = x.dim(1),
          .features = x.dim(2),
          .units = units,
          .with_cell = options.final_cell};
}

}  // namespace

Variable lstm(const Variable& x, const LstmParameters& p, const LstmOptions& options) {
  const Sizes sizes = checked_sizes(x, p, options);
  const Device device = x.value().device();
  if (shapes_only()) return Variable(Tensor::zeros(sizes.output(), x.dtype(), device));
  Pass pass;
  Tensor y = visit_floating(x.dtype(), "lstm", [&](auto zero) {
    return forward<decltype(zero)>(sizes, options, x.value(), p, pass);
  });
  const std::vector<Variable> inputs{x, p.weight, p.recurrent, p.bias, p.output, p.cell};
  if (!should_record(inputs)) return Variable(y);
  return record(y, std::make_shared<LstmFunction>(sizes, options, x, p, pass), inputs);
}

}  // namespace steelyard
