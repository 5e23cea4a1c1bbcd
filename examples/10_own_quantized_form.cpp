// A layer of your own with its quantized form: trained in float, fine-tuned on integers, exported,
// and verified code by code.

#include <fmt/core.h>

#include <filesystem>
#include <memory>

#include "made_up_images.h"
#include "steelyard/export/onnx/onnx.h"
#include "steelyard/export/trace.h"
#include "steelyard/export/verify.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/prepare/prepare.h"

using namespace steelyard;

// A filter for each channel (a depthwise convolution, 3 x 3). Parameters: weight [C, 1, 3, 3],
// bias.
class Filter : public Module {
 public:
  Filter(std::int64_t channels, Rng& rng) : channels_(channels) {
    weight_ = register_parameter("weight", fan_in_uniform({channels, 1, 3, 3}, 9, rng));
    bias_ = register_parameter("bias", Tensor::zeros({channels}, DType::kF32));
  }
  Conv2dGeometry geometry() const {
    return {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = channels_};
  }
  Variable forward(const Variable& x, ForwardContext&) override {
    return conv2d(x, weight_, bias_, geometry());
  }
  std::string type_name() const override { return "Filter"; }

 private:
  std::int64_t channels_;
  Variable weight_;
  Variable bias_;
};

// The quantized layer: the library's integer convolution with the filter's weights.
class QatFilter : public qat::QuantizedLayer {
 public:
  QatFilter(const Filter& filter, const qat::FormRequest& request)
      : QuantizedLayer(qat::conv2d_product(filter.geometry()), request.weight, request.bias,
                       request.activation, request.config) {}
  std::string type_name() const override { return "QatFilter"; }
};

qat::QuantizedForm filter_form() {
  return qat::form_of<Filter>(
      "Filter", qat::FormKind::kWeighted,
      [](const Filter& filter, const qat::FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatFilter>(filter, request);
      });
}

// A graph of named nodes: two filters read one image, and their outputs are added.
std::shared_ptr<Module> make_model(Rng& rng) {
  const auto conv = std::make_shared<Conv2d>(
      Conv2dOptions{.in_channels = 1, .out_channels = 8, .kernel_size = {3, 3}, .stride = {2, 2}},
      rng);
  const auto fc =
      std::make_shared<Linear>(LinearOptions{.in_features = 8 * 5 * 5, .out_features = 4}, rng);
  return std::make_shared<Graph>(
      std::vector<Graph::NamedNode>{{"conv", conv},
                                    {"relu", std::make_shared<ReLU>()},
                                    {"left", std::make_shared<Filter>(8, rng), {"relu"}},
                                    {"right", std::make_shared<Filter>(8, rng), {"relu"}},
                                    {"right_relu", std::make_shared<ReLU>()},
                                    {"sum", std::make_shared<Add>(), {"left", "right_relu"}},
                                    {"flatten", std::make_shared<Flatten>()},
                                    {"fc", fc}});
}

// A few epochs; returns the accuracy on `test`.
double train(Module& model, const Dataset& data, const Dataset& test,
             const Normalization& normalization, int epochs, double lr) {
  LoaderOptions options;
  options.batch_size = 64;
  options.shuffle = true;
  options.normalization = normalization;
  DataLoader loader(data, options);
  Sgd optimizer(model.named_parameters(), {.momentum = 0.9});
  for (int epoch = 0; epoch < epochs; ++epoch) {
    loader.start(epoch);
    while (const auto batch = loader.next()) {
      ForwardContext context{.training = true};
      clear_gradients(model);
      cross_entropy(model.forward(Variable(batch->inputs), context), batch->targets).backward();
      optimizer.step(lr);
    }
  }
  return *evaluate(model, test, normalization, Loss{}, 64).top1;
}

int main() {
  const Dataset data = made_up_images(1024, 1);
  const Dataset test = made_up_images(512, 2);
  const Normalization normalization = compute_normalization(data);
  Rng rng(5);
  std::shared_ptr<Module> model = make_model(rng);
  const double in_float = train(*model, data, test, normalization, 8, 0.05);

  qat::QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Filter", "Linear"}, qat::default_w8a8()});
  const qat::PreparedModel prepared = qat::prepare(model, config, {filter_form()});
  fmt::print("{}\n", qat::to_string(prepared.plan));
  const double quantized = train(*prepared.model, data, test, normalization, 3, 0.01);

  LoaderOptions options;
  options.batch_size = 8;
  options.normalization = normalization;
  const Batch batch = make_batch(test, options, 0, 0);
  deploy::Graph graph = deploy::trace(*prepared.model, batch.inputs, "filters").graph;
  graph.preprocessing = {DType::kU8, normalization};
  const deploy::Interpreter interpreter(graph);
  const auto verification = deploy::verify(*prepared.model, interpreter, test, test.size(), 64);
  if (deploy::can_write_onnx()) {
    const auto path = std::filesystem::temp_directory_path() / "steelyard_filters.onnx";
    deploy::write_onnx(path, graph);
    fmt::print("wrote {} bytes of ONNX\n", std::filesystem::file_size(path));
    std::filesystem::remove(path);
  }
  fmt::print("{}test top-1: float {:.2f} %, int8 {:.2f} %\n", to_string(verification), in_float,
             quantized);
  const bool verified = verification.first_mismatch() == nullptr;
  return in_float > 95 && quantized > in_float - 1 && verified ? 0 : 1;
}
