// An imported network in somebody else's training loop: data, loss, optimizer and steps are the
// host's, quantization, gradients and export are ours.
//
//   HostedNetwork network(imports::read_onnx("model.onnx"), parse_hosted_recipe(text, "recipe"));
//   network.set_training(true);
//   const HostedPass pass = network.forward({images}, {.records = true});
//   pass.output.backward(gradient_of_the_hosts_loss);
//   ... the host's optimizer reads and writes the tensors of network.parameters() ...
//   network.write("model.deployed.onnx", "onnx");
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/export/verify.h"
#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/import/onnx/onnx_model.h"
#include "steelyard/import/translate.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/plan.h"
#include "steelyard/recipes/hosted/hosted_ports.h"
#include "steelyard/recipes/hosted/hosted_recipe.h"

namespace steelyard {

struct HostedOptions {
  std::vector<std::string> outputs = {};  // as `model.output` of a recipe; none: all of the file
  // Of inputs whose sizes the file leaves free: the shapes of samples in the file's layout; a name
  // of "" is the only input's.
  std::vector<NamedInput> samples = {};
  std::vector<imports::BatchAxis> batch_axes = {};  // where the file does not say it
  Device device = {};
};

struct PassOptions {
  bool records = false;  // what backward() needs
  bool input_gradients = false;
};

// One forward pass.
struct HostedPass {
  Variable output;               // in the file's layout; several as rows, as the engine has them
  std::vector<Variable> inputs;  // leaves, in the file's order and layouts
};

class HostedNetwork {
 public:
  // Throws InputError for a network or a recipe that does not fit, UnsupportedGraph among it.
  HostedNetwork(imports::OnnxModel model, Recipe recipe, const HostedOptions& options = {},
                const Registries& registries = builtin_registries());

  const HostedPorts& ports() const { return ports_; }
  Device device() const { return device_; }
  // Nothing for a recipe without `quantize`.
  const std::optional<qat::Plan>& plan() const { return plan_; }
  const std::vector<std::string>& notes() const { return notes_; }

  // Each once, under its first name.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  // Throws std::invalid_argument for an unknown name, as the next ones do.
  const Variable& parameter(const std::string& name) const;
  // The parameter's elements lie where the tensor's do from now on, and are what it holds. Throws
  // for another shape, dtype or device.
  void set_parameter(const std::string& name, const Tensor& value);
  std::vector<NamedBuffer> buffers() const { return model_->named_buffers(); }
  Tensor buffer(const std::string& name) const;
  void clear_gradients() { steelyard::clear_gradients(*model_); }

  void set_training(bool on) { training_ = on; }
  // f32, or what holds the whole numbers of an input that takes them; on the network's device.
  // Throws std::invalid_argument, naming the input, for others.
  HostedPass forward(const std::vector<Tensor>& inputs, const PassOptions& options);
  // Ranges from data (qat/ptq/calibrate.h): the inputs of each batch.
  void calibrate(const std::vector<std::vector<Tensor>>& batches);
  // Throws TrainingDiverged where quantizers met values that are not finite; waits for a GPU.
  void require_finite();

  // What the recipe's schedule has for an epoch, from 0; the first was begun.
  void begin_epoch(std::int64_t epoch);
  // Switches of all quantizers, and of all batch norms; the next begin_epoch() sets its own.
  void set_observing(bool on);
  void set_quantizing(bool weights, bool activations);
  void freeze_batch_norms(bool on);
  // Where random numbers begin anew; before, that is the recipe's seed.
  void set_seed(std::uint64_t seed);

  // A checkpoint with parameters, buffers, the network and where its random numbers are. load()
  // throws InputError for one of another network; then everything stays as it was.
  void save(const std::filesystem::path& path) const;
  void load(const std::filesystem::path& path);

  // The deployed graph. Throws InputError where the model is not in its final form.
  deploy::Graph deployed() const;
  // Replaces a file by one of export_formats().
  void write(const std::filesystem::path& path, const std::string& format) const;
  // Compares the trained model on the inputs with `deployed`: the integer model of a file, or of
  // deployed() where it is empty.
  deploy::Verification verify(const std::vector<Tensor>& inputs,
                              const std::filesystem::path& deployed) const;

 private:
  HostedNetwork(imports::Imported imported, std::string source, Recipe recipe, Device device,
                const Registries& registries);

  std::shared_ptr<Module> float_model() const;
  std::shared_ptr<Module> prepared(std::shared_ptr<Module> model,
                                   std::optional<qat::Plan>& plan) const;
  // The model itself where it is on the CPU, else a copy of it there.
  std::shared_ptr<Module> model_on_cpu() const;
  deploy::Graph graph_of(const std::shared_ptr<Module>& model) const;
  Variable leaf(std::size_t input, const Tensor& value, bool requires_grad) const;
  Variable joined(const std::vector<Tensor>& inputs) const;
  void require_schedule() const;

  const Registries& registries_;
  Recipe recipe_;
  Device device_;
  imports::GraphSpec network_;
  std::string source_;
  HostedPorts ports_;
  std::vector<std::string> notes_;
  std::optional<qat::Plan> plan_;
  std::shared_ptr<Module> model_;
  std::vector<NamedParameter> parameters_;
  std::optional<qat::ScheduleCallback> schedule_;
  bool training_ = false;
  Rng rng_;
};

}  // namespace steelyard
