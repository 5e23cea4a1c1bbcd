// Networks: from a file and a recipe, their tensors, their switches.
#include "steelyard/c/network.h"

#include <stdexcept>

#include "steelyard/c/context.h"
#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/recipes/hosted/plan_json.h"

namespace steelyard::c {
namespace {

constexpr const char* kUnnamedFile = "network.onnx";  // in messages
constexpr const char* kRecipe = "recipe";             // likewise

imports::OnnxModel model_from(const steelyard_network_descriptor& given) {
  if (given.onnx == nullptr) return imports::read_onnx(&required(given.onnx_path, "onnx_path"));
  return imports::parse_onnx(std::string(static_cast<const char*>(given.onnx), given.onnx_bytes),
                             given.onnx_path == nullptr ? kUnnamedFile : given.onnx_path);
}

HostedOptions options_from(const steelyard_network_descriptor& given) {
  HostedOptions options;
  if (given.output != nullptr && *given.output != 0) options.outputs = {given.output};
  if (given.sample_count > 0) required(given.samples, "samples");
  for (std::size_t i = 0; i < given.sample_count; ++i) {
    const steelyard_sample_shape& sample = given.samples[i];
    if (sample.rank < 0 || sample.rank > STEELYARD_MAX_RANK) {
      throw std::invalid_argument("samples: expected a rank from 0 to " +
                                  std::to_string(STEELYARD_MAX_RANK) + ", got " +
                                  std::to_string(sample.rank));
    }
    if (sample.rank > 0) required(sample.shape, "the shape of a sample");
    options.samples.push_back(
        {sample.name == nullptr ? "" : sample.name, {sample.shape, sample.shape + sample.rank}});
  }
  if (given.batch_axis_count > 0) required(given.batch_axes, "batch_axes");
  for (std::size_t i = 0; i < given.batch_axis_count; ++i) {
    const steelyard_batch_axis& batch = given.batch_axes[i];
    options.batch_axes.push_back({batch.name == nullptr ? "" : batch.name, batch.axis});
  }
  options.device = available_device_from(given.device, "descriptor");
  return options;
}

// The name of one of a kind. Throws std::invalid_argument for another kind.
const std::string& name_of(const steelyard_network& network, std::int32_t kind, std::size_t index) {
  switch (kind) {
    case STEELYARD_PARAMETERS:
      return network.hosted->parameters().at(index).name;
    case STEELYARD_BUFFERS:
      return network.buffer_names.at(index);
    case STEELYARD_OUTPUTS:
      return network.hosted->ports().outputs().at(index).name;
    default:
      return network.hosted->ports().inputs().at(index).name;
  }
}

std::size_t count_of(const steelyard_network& network, std::int32_t kind) {
  switch (kind) {
    case STEELYARD_PARAMETERS:
      return network.hosted->parameters().size();
    case STEELYARD_BUFFERS:
      return network.buffer_names.size();
    case STEELYARD_INPUTS:
      return network.hosted->ports().inputs().size();
    case STEELYARD_OUTPUTS:
      return network.hosted->ports().outputs().size();
    default:
      throw std::invalid_argument("expected a kind from 0 to " + std::to_string(STEELYARD_OUTPUTS) +
                                  ", got " + std::to_string(kind));
  }
}

HostedNetwork& hosted_of(const steelyard_network* network) {
  return *required(network, "network").hosted;
}

}  // namespace

void require_precision(const steelyard_context& context, const HostedNetwork& network) {
  if (context.precision != kernels::MatmulPrecision::kTf32) return;
  if (network.device().kind == Device::Kind::kCuda) return;
  throw std::invalid_argument(
      "expected a matmul precision of float32 or bf16 on the CPU, the context has tf32");
}

std::vector<Tensor> copied_inputs(const HostedNetwork& network, std::size_t count,
                                  const DLTensor* const* inputs) {
  std::vector<Tensor> own;
  if (count > 0) required(inputs, "inputs");
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "input " + std::to_string(i);
    const View view = view_of(inputs[i], name.c_str());
    require_on(view, name.c_str(), network.device());
    own.push_back(copied(view, name.c_str()));
  }
  return own;
}

}  // namespace steelyard::c

using namespace steelyard;

void steelyard_network_descriptor_init(steelyard_network_descriptor* descriptor,
                                       size_t struct_bytes) {
  steelyard_network_descriptor defaults{};
  defaults.device = {kDLCPU, 0};
  c::init_struct(descriptor, struct_bytes, defaults);
}

steelyard_status steelyard_network_create(steelyard_context* context,
                                          const steelyard_network_descriptor* descriptor,
                                          steelyard_network** network) {
  return c::call(context, __func__, [&] {
    c::required(network, "network") = nullptr;
    const auto given =
        c::read_struct(descriptor, "a descriptor", "steelyard_network_descriptor_init");
    Recipe recipe = parse_hosted_recipe(&c::required(given.recipe, "recipe"), c::kRecipe);
    const HostedOptions options = c::options_from(given);
    const c::SelectedDevice selected(options.device);
    auto made = std::make_unique<steelyard_network>();
    made->hosted =
        std::make_shared<HostedNetwork>(c::model_from(given), std::move(recipe), options);
    for (const NamedBuffer& buffer : made->hosted->buffers()) {
      made->buffer_names.push_back(buffer.name);
    }
    *network = made.release();
  });
}

void steelyard_network_destroy(steelyard_network* network) { delete network; }

steelyard_status steelyard_network_plan(steelyard_context* context, steelyard_network* network,
                                        int32_t form, const char** text) {
  return c::call(context, __func__, [&] {
    const auto& plan = c::hosted_of(network).plan();
    const bool json = c::flag(form, "form");
    c::required(text, "text") = nullptr;
    network->text = !plan ? "" : json ? plan_json(*plan) : qat::to_string(*plan);
    *text = network->text.c_str();
  });
}

steelyard_status steelyard_network_notes(steelyard_context* context, steelyard_network* network,
                                         const char** text) {
  return c::call(context, __func__, [&] {
    const HostedNetwork& hosted = c::hosted_of(network);
    c::required(text, "text") = nullptr;
    network->text.clear();
    for (const std::string& note : hosted.notes()) network->text += note + "\n";
    *text = network->text.c_str();
  });
}

steelyard_status steelyard_network_count(steelyard_context* context,
                                         const steelyard_network* network, int32_t kind,
                                         size_t* count) {
  return c::call(context, __func__, [&] {
    c::required(count, "count") = c::count_of(c::required(network, "network"), kind);
  });
}

steelyard_status steelyard_network_name(steelyard_context* context,
                                        const steelyard_network* network, int32_t kind,
                                        size_t index, const char** name) {
  return c::call(context, __func__, [&] {
    c::required(name, "name") = nullptr;
    const size_t count = c::count_of(c::required(network, "network"), kind);
    if (index >= count) {
      throw std::invalid_argument("expected an index below " + std::to_string(count) + ", got " +
                                  std::to_string(index));
    }
    *name = c::name_of(*network, kind, index).c_str();
  });
}

steelyard_status steelyard_network_parameter(steelyard_context* context,
                                             const steelyard_network* network, const char* name,
                                             DLManagedTensor** view) {
  return c::call(context, __func__, [&] {
    c::required(view, "view") = nullptr;
    *view = c::managed(c::hosted_of(network).parameter(&c::required(name, "name")).value());
  });
}

steelyard_status steelyard_network_buffer(steelyard_context* context,
                                          const steelyard_network* network, const char* name,
                                          DLManagedTensor** view) {
  return c::call(context, __func__, [&] {
    c::required(view, "view") = nullptr;
    *view = c::managed(c::hosted_of(network).buffer(&c::required(name, "name")));
  });
}

steelyard_status steelyard_network_set_parameter(steelyard_context* context,
                                                 steelyard_network* network, const char* name,
                                                 const DLTensor* memory) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = c::hosted_of(network);
    c::required(name, "name");
    const c::View view = c::view_of(memory, "memory");
    c::require_dense(view, "memory");
    const std::shared_ptr<const void> callers(view.data, [](const void*) {});
    hosted.set_parameter(name,
                         Tensor::borrow(view.data, view.shape, view.dtype, view.device, callers));
  });
}

steelyard_status steelyard_network_set_trainable(steelyard_context* context,
                                                 steelyard_network* network, const char* name,
                                                 int32_t trainable) {
  return c::call(context, __func__, [&] {
    Variable parameter = c::hosted_of(network).parameter(&c::required(name, "name"));
    parameter.set_requires_grad(c::flag(trainable, "trainable"));
  });
}

steelyard_status steelyard_network_gradient(steelyard_context* context,
                                            const steelyard_network* network, const char* name,
                                            DLManagedTensor** view) {
  return c::call(context, __func__, [&] {
    c::required(view, "view") = nullptr;
    c::give({c::hosted_of(network).parameter(&c::required(name, "name")).grad()}, view);
  });
}

steelyard_status steelyard_network_gradients(steelyard_context* context,
                                             const steelyard_network* network, size_t count,
                                             DLManagedTensor** views) {
  return c::call(context, __func__, [&] {
    const std::vector<NamedParameter>& parameters = c::hosted_of(network).parameters();
    c::require_room(count, parameters.size(), "parameters");
    if (count == 0) return;
    c::required(views, "views");
    std::vector<Tensor> gradients;
    for (const NamedParameter& p : parameters) gradients.push_back(p.variable.grad());
    c::give(gradients, views);
  });
}

steelyard_status steelyard_network_zero_gradients(steelyard_context* context,
                                                  steelyard_network* network) {
  return c::call(context, __func__, [&] { c::hosted_of(network).clear_gradients(); });
}

steelyard_status steelyard_network_set_training(steelyard_context* context,
                                                steelyard_network* network, int32_t training) {
  return c::call(context, __func__,
                 [&] { c::hosted_of(network).set_training(c::flag(training, "training")); });
}

steelyard_status steelyard_network_begin_epoch(steelyard_context* context,
                                               steelyard_network* network, int64_t epoch) {
  return c::call(context, __func__, [&] { c::hosted_of(network).begin_epoch(epoch); });
}

steelyard_status steelyard_network_set_observing(steelyard_context* context,
                                                 steelyard_network* network, int32_t observing) {
  return c::call(context, __func__,
                 [&] { c::hosted_of(network).set_observing(c::flag(observing, "observing")); });
}

steelyard_status steelyard_network_set_quantizing(steelyard_context* context,
                                                  steelyard_network* network, int32_t weights,
                                                  int32_t activations) {
  return c::call(context, __func__, [&] {
    HostedNetwork& hosted = c::hosted_of(network);
    const bool of_activations = c::flag(activations, "activations");
    hosted.set_quantizing(c::flag(weights, "weights"), of_activations);
  });
}

steelyard_status steelyard_network_freeze_batch_norms(steelyard_context* context,
                                                      steelyard_network* network, int32_t frozen) {
  return c::call(context, __func__,
                 [&] { c::hosted_of(network).freeze_batch_norms(c::flag(frozen, "frozen")); });
}

steelyard_status steelyard_network_set_seed(steelyard_context* context, steelyard_network* network,
                                            uint64_t seed) {
  return c::call(context, __func__, [&] { c::hosted_of(network).set_seed(seed); });
}
