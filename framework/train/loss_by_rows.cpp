#include "steelyard/framework/train/loss_by_rows.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/framework/ops/losses/loss_support.h"

namespace steelyard {
namespace {

// A scalar whose gradients were computed with it.
class LossByRowsFunction : public Function {
 public:
  explicit LossByRowsFunction(std::vector<Tensor> grads) {
    for (Tensor& grad : grads) save(std::move(grad));
  }

  std::string name() const override { return "loss_by_rows"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(inputs().size());
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (needs_grad(i)) grads[i] = ops::scaled_gradient(saved()[i], grad_output);
    }
    return grads;
  }
};

// The gradients that leaves have, which are theirs again at the end.
class GradientsAside {
 public:
  explicit GradientsAside(std::vector<Variable> leaves) : leaves_(std::move(leaves)) {
    for (Variable& leaf : leaves_) {
      before_.push_back(leaf.grad());
      leaf.clear_grad();
    }
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;
  ~GradientsAside() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i].node()->grad = before_[i];
  }

 private:
  std::vector<Variable> leaves_;
  std::vector<Tensor> before_;
};

// sum += x.
void add_to(const Tensor& sum, const Tensor& x) {
  visit_floating(sum.dtype(), "loss_by_rows", [&](auto zero) {
    using T = decltype(zero);
    run(sum.device(),
        kernels::Add<T>{.n = sum.size(), .a = sum.data<T>(), .b = x.data<T>(), .y = sum.data<T>()});
  });
}

// Sums over the parts of the rows.
struct Sums {
  Tensor loss;                // of x's dtype
  std::vector<Tensor> grads;  // of the parameters; undefined where no part depends on one

  void add(const Variable& mean, double share, const std::vector<Variable>& parameters) {
    const Tensor factor = Tensor::full(mean.shape(), share, mean.dtype(), mean.value().device());
    const Tensor part = ops::scaled_gradient(mean.value(), factor);
    if (loss.defined()) {
      add_to(loss, part);
    } else {
      loss = part.clone();
    }
    if (!mean.requires_grad()) return;
    mean.backward(factor);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Variable parameter = parameters[i];
      const Tensor grad = parameter.grad();
      if (!grad.defined()) continue;
      parameter.clear_grad();
      if (grads[i].defined()) {
        add_to(grads[i], grad);
      } else {
        grads[i] = grad;
      }
    }
  }
};

}  // namespace

Tensor rows_within(const Tensor& x, std::int64_t first, std::int64_t count) {
  const std::int64_t width = x.dim(-1);
  auto* const bytes = static_cast<std::byte*>(x.raw());
  return Tensor::borrow(bytes + first * (width * x.bytes() / x.size()), {count, width}, x.dtype(),
                        x.device(), std::make_shared<Tensor>(x));
}

Variable loss_by_rows(
    const Variable& x, std::int64_t at_once, const std::vector<Variable>& parameters,
    const std::function<Variable(const Variable& rows, std::int64_t first)>& loss) {
  constexpr std::int64_t kAligned = 16;
  const Tensor& whole = x.value();
  if (at_once < 1 || at_once % kAligned != 0 || whole.size() < 1) {
    throw std::invalid_argument("[loss_by_rows] expected rows and a multiple of 16 at once, got " +
                                shape_string(whole.shape()) + " and " + std::to_string(at_once));
  }
  const std::int64_t rows = whole.size() / whole.dim(-1);
  Tensor grad_x;
  if (should_record({x})) grad_x = Tensor::empty(whole.shape(), whole.dtype(), whole.device());
  Sums sums{.loss = {}, .grads = std::vector<Tensor>(parameters.size())};
  {
    const GradientsAside aside(parameters);
    for (std::int64_t first = 0; first < rows; first += at_once) {
      const std::int64_t count = std::min(at_once, rows - first);
      const Variable part(rows_within(whole, first, count), grad_x.defined());
      sums.add(loss(part, first), static_cast<double>(count) / static_cast<double>(rows),
               parameters);
      if (!grad_x.defined()) continue;
      const Tensor to = rows_within(grad_x, first, count);
      if (part.grad().defined()) {
        to.copy_from(part.grad());
      } else {
        to.fill(0);
      }
    }
  }
  std::vector<Variable> inputs{x};
  std::vector<Tensor> grads{grad_x};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!sums.grads[i].defined()) continue;
    inputs.push_back(parameters[i]);
    grads.push_back(std::move(sums.grads[i]));
  }
  if (!should_record(inputs)) return Variable(sums.loss);
  return record(sums.loss, std::make_shared<LossByRowsFunction>(std::move(grads)), inputs);
}

}  // namespace steelyard
