// Imports an ONNX file and runs it: run_model MODEL INPUTS OUTPUTS [OUTPUT]. INPUTS is a
// safetensors file with `inputs`, images with channels last, or with a tensor for each of several
// inputs by its name; OUTPUTS gets `outputs` likewise, and `loss_falls`, 1 where a step of gradient
// descent on the mean square of the outputs lowers it.
#include <cstdio>
#include <exception>

#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/import/onnx/onnx_file.h"
#include "tests/import/onnx_support.h"

namespace {

using namespace steelyard;

Variable mean_square(Module& module, const Variable& x) {
  ForwardContext context;
  const Variable y = module.forward(x, context);
  return mean(y * y);
}

// A step of the gradient, from weights slightly other than the file's: some networks of ONNX's have
// all alike.
struct Step {
  double square;  // of the gradient
  bool falls;     // the loss
};
Step gradient_step(Module& module, const Variable& x) {
  const std::vector<NamedParameter> parameters = distinct(module.named_parameters());
  for (const NamedParameter& p : parameters) {
    const Tensor noise = steelyard::testing::random_tensor(p.variable.shape(), 1, DType::kF32);
    float* value = p.variable.value().data<float>();
    for (std::int64_t i = 0; i < noise.size(); ++i) value[i] *= 1 + 0.1F * noise.data<float>()[i];
  }
  const Variable before = mean_square(module, x);
  before.backward();
  double square = 0;
  for (const NamedParameter& p : parameters) {
    if (!p.variable.grad().defined()) continue;
    for (const float g : p.variable.grad().span<float>()) square += double{g} * double{g};
  }
  const double step = 1e-3 * before.value().item() / square;
  for (const NamedParameter& p : parameters) {
    if (!p.variable.grad().defined()) continue;
    float* value = p.variable.value().data<float>();
    const float* grad = p.variable.grad().data<float>();
    for (std::int64_t i = 0; i < p.variable.value().size(); ++i) {
      value[i] -= static_cast<float>(step * grad[i]);
    }
  }
  return {square, mean_square(module, x).value().item() < before.value().item()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  try {
    std::vector<std::string> names;
    for (const NamedTensor& tensor : read_safetensors(argv[2]).tensors) {
      if (tensor.name != "inputs") names.push_back(tensor.name);
    }
    const Dataset samples = load_samples(load_safetensors_inputs(argv[2], names));
    const Tensor& inputs = samples.inputs;
    imports::OnnxModel model = imports::read_onnx(argv[1]);
    if (argc == 5) imports::choose_outputs(model, {argv[4]});
    const imports::Imported imported =
        imports::translate(model, {samples.sample_shape(), samples.names.inputs});
    const Tensor outputs = imports::output_of(imported, inputs);
    const auto module = imports::module_of(imported);
    const Step step = gradient_step(*module, Variable(inputs));
    write_safetensors(argv[3], {{{"gradient", Tensor::full({1}, step.square)},
                                 {"loss_falls", Tensor::full({1}, step.falls ? 1 : 0)},
                                 {"outputs", outputs}},
                                {}});
    std::printf("%zu modules\n", imported.graph.nodes.size());
    return 0;
  } catch (const imports::UnsupportedGraph& error) {
    for (const auto& node : error.nodes()) std::printf("%s\n", to_string(node).c_str());
    return 3;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 3;
  }
}
