// Networks: forward and backward passes, ranges from data, files.
#include <algorithm>
#include <stdexcept>

#include "steelyard/c/context.h"
#include "steelyard/c/network.h"

namespace steelyard::c {
namespace {

// What calls of a network share: its device in the order of the caller's stream.
template <typename Work>
void in_network(const steelyard_context& context, const HostedNetwork& network, void* stream,
                const Work& work) {
  require_precision(context, network);
  in_order_of(network.device(), stream, work);
}

PassOptions pass_options(std::int32_t input_gradients, steelyard_pass** pass) {
  return {.records = pass != nullptr, .input_gradients = flag(input_gradients, "input_gradients")};
}

std::unique_ptr<steelyard_pass> run_forward(const steelyard_network& network, std::size_t count,
                                            const DLTensor* const* inputs,
                                            const PassOptions& options) {
  auto made = std::make_unique<steelyard_pass>();
  made->hosted = network.hosted;
  made->pass = network.hosted->forward(copied_inputs(*network.hosted, count, inputs), options);
  return made;
}

steelyard_verification verification_from(const deploy::Verification& result) {
  steelyard_verification verdict{};
  verdict.samples = result.samples;
  for (const deploy::ValueComparison& value : result.values) {
    if (!value.quantized) continue;
    verdict.codes += value.elements;
    verdict.differing += value.differing;
  }
  for (const deploy::ValueComparison& value : result.other_parameters) {
    verdict.codes += value.elements;
    verdict.differing += value.differing;
  }
  verdict.same = result.first_mismatch() == nullptr ? 1 : 0;
  return verdict;
}

}  // namespace
}  // namespace steelyard::c

using namespace steelyard;

steelyard_status steelyard_network_forward(steelyard_context* context, steelyard_network* network,
                                           void* stream, size_t input_count,
                                           const DLTensor* const* inputs, int32_t input_gradients,
                                           DLManagedTensor** output, steelyard_pass** pass) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = *c::required(network, "network").hosted;
    c::required(output, "output") = nullptr;
    if (pass != nullptr) *pass = nullptr;
    const PassOptions options = c::pass_options(input_gradients, pass);
    c::in_network(*context, hosted, stream, [&] {
      auto made = c::run_forward(*network, input_count, inputs, options);
      *output = c::managed(made->pass.output.value());
      if (pass != nullptr) *pass = made.release();
    });
  });
}

steelyard_status steelyard_network_forward_outputs(
    steelyard_context* context, steelyard_network* network, void* stream, size_t input_count,
    const DLTensor* const* inputs, int32_t input_gradients, size_t output_count,
    DLManagedTensor** outputs, steelyard_pass** pass) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = *c::required(network, "network").hosted;
    c::required(outputs, "outputs");
    const size_t count = hosted.ports().outputs().size();
    c::require_room(output_count, count, "outputs");
    std::fill_n(outputs, count, nullptr);
    if (pass != nullptr) *pass = nullptr;
    const PassOptions options = c::pass_options(input_gradients, pass);
    c::in_network(*context, hosted, stream, [&] {
      auto made = c::run_forward(*network, input_count, inputs, options);
      c::give(hosted.ports().parts(made->pass.output.value()), outputs);
      if (pass != nullptr) *pass = made.release();
    });
  });
}

steelyard_status steelyard_pass_backward(steelyard_context* context, steelyard_pass* pass,
                                         void* stream, const DLTensor* grad_output) {
  return c::call(context, __func__, [&] {
    const HostedNetwork& hosted = *c::required(pass, "pass").hosted;
    const c::View gradient = c::view_of(grad_output, "grad_output");
    c::require_dtype(gradient, "grad_output", {DType::kF32});
    c::require_shape(gradient, "grad_output", pass->pass.output.shape());
    c::require_on(gradient, "grad_output", hosted.device());
    c::in_network(*context, hosted, stream,
                  [&] { pass->pass.output.backward(c::copied(gradient, "grad_output")); });
  });
}

steelyard_status steelyard_pass_backward_outputs(steelyard_context* context, steelyard_pass* pass,
                                                 void* stream, size_t output_count,
                                                 const DLTensor* const* gradients) {
  return c::call(context, __func__, [&] {
    const HostedNetwork& hosted = *c::required(pass, "pass").hosted;
    if (output_count > 0) c::required(gradients, "gradients");
    c::in_network(*context, hosted, stream, [&] {
      std::vector<Tensor> own(output_count);
      for (size_t i = 0; i < output_count; ++i) {
        if (gradients[i] == nullptr) continue;
        const std::string name = "gradient " + std::to_string(i);
        const c::View view = c::view_of(gradients[i], name.c_str());
        c::require_on(view, name.c_str(), hosted.device());
        own[i] = c::copied(view, name.c_str());
      }
      const Variable& output = pass->pass.output;
      output.backward(hosted.ports().joined_gradients(own, output.value()));
    });
  });
}

steelyard_status steelyard_pass_zero_gradients(steelyard_context* context, steelyard_pass* pass) {
  return c::call(context, __func__, [&] {
    for (Variable& input : c::required(pass, "pass").pass.inputs) {
      if (input.requires_grad()) input.clear_grad();
    }
  });
}

steelyard_status steelyard_pass_input_gradient(steelyard_context* context,
                                               const steelyard_pass* pass, size_t index,
                                               DLManagedTensor** view) {
  return c::call(context, __func__, [&] {
    c::required(view, "view") = nullptr;
    const std::vector<Variable>& inputs = c::required(pass, "pass").pass.inputs;
    if (index >= inputs.size()) {
      throw std::invalid_argument("expected an index below " + std::to_string(inputs.size()) +
                                  ", got " + std::to_string(index));
    }
    if (!inputs[index].requires_grad()) {
      throw std::invalid_argument("the pass has no gradient of input " + std::to_string(index) +
                                  ": expected a forward pass with input_gradients of an input "
                                  "of floats");
    }
    const Tensor& gradient = inputs[index].grad();
    if (gradient.defined()) *view = c::managed(gradient);
  });
}

void steelyard_pass_destroy(steelyard_pass* pass) { delete pass; }

steelyard_status steelyard_network_require_finite(steelyard_context* context,
                                                  steelyard_network* network) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = *c::required(network, "network").hosted;
    const c::SelectedDevice selected(hosted.device());
    hosted.require_finite();
  });
}

steelyard_status steelyard_network_calibrate(steelyard_context* context, steelyard_network* network,
                                             void* stream, size_t batches, size_t input_count,
                                             const DLTensor* const* inputs) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = *c::required(network, "network").hosted;
    if (batches > 0) c::required(inputs, "inputs");
    c::in_network(*context, hosted, stream, [&] {
      std::vector<std::vector<Tensor>> copies;
      for (size_t i = 0; i < batches; ++i) {
        copies.push_back(c::copied_inputs(hosted, input_count, inputs + i * input_count));
      }
      hosted.calibrate(copies);
    });
  });
}

steelyard_status steelyard_network_save(steelyard_context* context,
                                        const steelyard_network* network, const char* path) {
  return c::call(context, __func__, [&] {
    const HostedNetwork& hosted = *c::required(network, "network").hosted;
    const c::SelectedDevice selected(hosted.device());
    hosted.save(&c::required(path, "path"));
  });
}

steelyard_status steelyard_network_load(steelyard_context* context, steelyard_network* network,
                                        const char* path) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = *c::required(network, "network").hosted;
    const c::SelectedDevice selected(hosted.device());
    hosted.load(&c::required(path, "path"));
  });
}

steelyard_status steelyard_network_export(steelyard_context* context,
                                          const steelyard_network* network, const char* format,
                                          const char* path) {
  return c::call(context, __func__, [&] {
    const HostedNetwork& hosted = *c::required(network, "network").hosted;
    c::required(format, "format");
    const c::SelectedDevice selected(hosted.device());
    hosted.write(&c::required(path, "path"), format);
  });
}

void steelyard_verification_init(steelyard_verification* verification, size_t struct_bytes) {
  c::init_struct(verification, struct_bytes, steelyard_verification{});
}

steelyard_status steelyard_network_verify(steelyard_context* context, steelyard_network* network,
                                          void* stream, size_t input_count,
                                          const DLTensor* const* inputs, const char* model,
                                          steelyard_verification* verification, const char** text) {
  return c::call(context, __func__, [&] {
    const HostedNetwork& hosted = *c::required(network, "network").hosted;
    c::read_struct(verification, "a verification", "steelyard_verification_init");
    if (text != nullptr) *text = nullptr;
    c::in_network(*context, hosted, stream, [&] {
      const deploy::Verification result = hosted.verify(
          c::copied_inputs(hosted, input_count, inputs), model == nullptr ? "" : model);
      network->text = deploy::to_string(result);
      c::init_struct(verification, verification->struct_bytes, c::verification_from(result));
      if (text != nullptr) *text = network->text.c_str();
    });
  });
}
