// Functions of each element, of floats.
#include <algorithm>
#include <cmath>

#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

template <typename F>
void compute(const Operands& op, const F& f) {
  const Tensor x = real_operand(op, 0);
  fill_floats(op.output(), [&](std::int64_t i) {
    return static_cast<float>(f(static_cast<double>(x.data<float>()[i])));
  });
}

// From `version` on files know it.
template <double (*f)(double)>
OpInfo row(Op op, const char* name, GraphVersion version = 5) {
  return {.op = op,
          .name = name,
          .rounds_floats = true,
          .graph_version = version,
          .shape = shape,
          .check = check,
          .reference = [](const Operands& operands) { compute(operands, f); }};
}

// The row of a function of x and a number, the only one of its options.
template <typename Options, double Options::*number, double (*f)(double, double)>
OpInfo row_of_number(Op op, const char* name, GraphVersion version) {
  return {.op = op,
          .name = name,
          .rounds_floats = true,
          .options = Options{},
          .graph_version = version,
          .shape = shape,
          .check =
              [](const Graph& graph, const Node& node) {
                check(graph, node);
                expect(std::isfinite(node.as<Options>().*number), node, "expected a finite number");
              },
          .reference =
              [](const Operands& operands) {
                compute(operands,
                        [n = operands.node.as<Options>().*number](double x) { return f(x, n); });
              }};
}

double root(double x) { return std::sqrt(x); }
double exponential(double x) { return std::exp(x); }
double logarithm(double x) { return std::log(x); }
double magnitude(double x) { return std::abs(x); }
double error_function(double x) { return std::erf(x); }
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }
double soft_plus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double signum(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
double floor_of(double x) { return std::floor(x); }
double ceiling(double x) { return std::ceil(x); }
double rounded(double x) { return std::nearbyint(x); }
double power(double x, double exponent) { return std::pow(x, exponent); }
double elu_of(double x, double alpha) { return x > 0 ? x : alpha * std::expm1(x); }

}  // namespace

OpInfo sqrt_op() { return row<root>(Op::kSqrt, "sqrt"); }
OpInfo exp_op() { return row<exponential>(Op::kExp, "exp"); }
OpInfo log_op() { return row<logarithm>(Op::kLog, "log"); }
OpInfo abs_op() { return row<magnitude>(Op::kAbs, "abs"); }
OpInfo erf_op() { return row<error_function>(Op::kErf, "erf"); }
OpInfo sin_op() { return row<sine>(Op::kSin, "sin", 9); }
OpInfo cos_op() { return row<cosine>(Op::kCos, "cos", 9); }
OpInfo softplus_op() { return row<soft_plus>(Op::kSoftplus, "softplus", 9); }
OpInfo sign_op() { return row<signum>(Op::kSign, "sign", 9); }
OpInfo floor_op() { return row<floor_of>(Op::kFloor, "floor", 9); }
OpInfo ceil_op() { return row<ceiling>(Op::kCeil, "ceil", 9); }
OpInfo round_op() { return row<rounded>(Op::kRound, "round", 9); }

OpInfo elu_op() {
  return row_of_number<EluOptions, &EluOptions::alpha, elu_of>(Op::kElu, "elu", 9);
}
OpInfo pow_op() { return row_of_number<Exponent, &Exponent::exponent, power>(Op::kPow, "pow", 5); }

}  // namespace steelyard::deploy
