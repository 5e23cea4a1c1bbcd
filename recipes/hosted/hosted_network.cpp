#include "steelyard/recipes/hosted/hosted_network.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/export/formats.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/metadata_numbers.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/translate.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/saved_state.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/qat/ptq/reestimate.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/runs/deployable.h"
#include "steelyard/recipes/runs/prepared_model.h"
#include "steelyard/runtime/graph_file.h"

namespace steelyard {
namespace {

constexpr std::uint64_t kHostedStream = std::uint64_t{0x4057} << 48;
constexpr const char* kRngPosition = "hosted_rng_position";
constexpr const char* kRngSeed = "hosted_rng_seed";  // absent: the recipe's
constexpr const char* kPlanKey = "hosted_plan";

// What is quantized and how: a line for each tensor.
std::string plan_text(const std::optional<qat::Plan>& plan) {
  std::string text;
  for (const qat::PlanRow& row : plan ? plan->rows : std::vector<qat::PlanRow>()) {
    text += row.module + " " + row.tensor + " " + row.quantized + " " + row.observer + "\n";
  }
  return text;
}

// The first line of a text, which it loses.
std::string take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string line(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return line.empty() ? "no more tensors" : line;
}

// Codes of one recipe mean other values in another: `found` is the plan of a checkpoint.
void require_same_plan(std::string_view own, std::string_view found, const std::string& source) {
  while (!own.empty() || !found.empty()) {
    const std::string expected = take_line(own), got = take_line(found);
    if (expected == got) continue;
    throw InputError(source + ": the state is that of another recipe: expected a plan with " +
                     expected + ", got " + printable(got));
  }
}

// The samples of a file with the sizes that the host gave for those it leaves free.
imports::SampleSpec sample_from(imports::OnnxModel model, const std::vector<NamedInput>& given) {
  for (const NamedInput& input : given) {
    const auto named = [&](const imports::OnnxPort& port) {
      return port.name == input.name || (input.name.empty() && model.inputs.size() == 1);
    };
    const auto port = std::find_if(model.inputs.begin(), model.inputs.end(), named);
    if (port == model.inputs.end()) {
      throw InputError(model.source + ": no input is called '" + printable(input.name) + "'");
    }
    const std::size_t batch = imports::batch_axis(model, *port);
    bool fits = port->dims.size() == input.shape.size() + 1;
    for (std::size_t i = 0; fits && i < input.shape.size(); ++i) {
      std::optional<std::int64_t>& size = port->dims[i < batch ? i : i + 1].size;
      fits = size.value_or(input.shape[i]) == input.shape[i];
      size = input.shape[i];
    }
    if (fits) continue;
    throw InputError(model.source + ": the input '" + printable(port->name) + "' is " +
                     imports::to_string(port->dims) + ", the sample given for it is " +
                     shape_string(input.shape));
  }
  return imports::sample_of(model);
}

imports::Imported imported_for(imports::OnnxModel& model, const HostedOptions& options) {
  model.keeps_weights = true;  // the host's optimizer trains the parameters that its model has
  imports::choose_outputs(model, options.outputs);
  imports::choose_batch_axes(model, options.batch_axes);
  return imports::translate(model, sample_from(model, options.samples));
}

// The tensor of a name in a list of named things. Throws std::invalid_argument.
template <typename Named>
const Named& entry_of(const std::vector<Named>& list, const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (const Named& entry : list) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw std::invalid_argument("no " + std::string(what) + " " + quote_for_message(name) +
                              did_you_mean(name, names));
}

std::vector<NamedTensor> state_on_cpu(const Module& model) {
  std::vector<NamedTensor> state = module_state(model);
  for (NamedTensor& entry : state) entry.tensor = entry.tensor.to(Device{});
  return state;
}

}  // namespace

HostedNetwork::HostedNetwork(imports::OnnxModel model, Recipe recipe, const HostedOptions& options,
                             const Registries& registries)
    : HostedNetwork(imported_for(model, options), model.source, std::move(recipe), options.device,
                    registries) {}

HostedNetwork::HostedNetwork(imports::Imported imported, std::string source, Recipe recipe,
                             Device device, const Registries& registries)
    : registries_(registries),
      recipe_(std::move(recipe)),
      device_(device),
      network_(std::move(imported.graph)),
      source_(std::move(source)),
      ports_(network_),
      notes_(std::move(imported.notes)),
      rng_(static_cast<std::uint64_t>(recipe_.seed), kHostedStream) {
  require_stages(recipe_, registries_, [this] { return float_model(); });
  const std::shared_ptr<Module> own = float_model();
  load_into(*own, imported.weights, source_);
  model_ = prepared(own, plan_);
  require_schedule();
  move_to(*model_, device_);
  parameters_ = distinct(model_->named_parameters());
  schedule_.emplace(*model_, recipe_.schedule);
  begin_epoch(0);
}

std::shared_ptr<Module> HostedNetwork::float_model() const {
  return imports::build(network_, /*with_head=*/true, source_);
}

std::shared_ptr<Module> HostedNetwork::prepared(std::shared_ptr<Module> model,
                                                std::optional<qat::Plan>& plan) const {
  if (!recipe_.quantize) return model;
  qat::PreparedModel result = prepared_model(std::move(model), recipe_, registries_);
  plan = std::move(result.plan);
  return result.model;
}

// Without this check, a key that freezes nothing would be ignored silently.
void HostedNetwork::require_schedule() const {
  if (!recipe_.schedule.freeze_batch_norm || qat::count_batch_norms(*model_) > 0) return;
  throw InputError(source_ +
                   ": schedule.freeze_bn: the model has no batch norm left (quantize.bn_fold: "
                   "frozen drops those that it folds)");
}

const Variable& HostedNetwork::parameter(const std::string& name) const {
  return entry_of(parameters_, name, "parameter").variable;
}

void HostedNetwork::set_parameter(const std::string& name, const Tensor& value) {
  Variable variable = parameter(name);
  const Tensor& own = variable.value();
  const auto text = [](const Tensor& t) {
    return std::string(dtype_name(t.dtype())) + " " + shape_string(t.shape()) + " on " +
           device_name(t.device());
  };
  if (value.shape() != own.shape() || value.dtype() != own.dtype() ||
      value.device() != own.device()) {
    throw std::invalid_argument("the parameter " + quote_for_message(name) + ": expected " +
                                text(own) + ", got " + text(value));
  }
  variable.set_value(value);
}

Tensor HostedNetwork::buffer(const std::string& name) const {
  return entry_of(buffers(), name, "buffer").tensor;
}

Variable HostedNetwork::leaf(std::size_t input, const Tensor& value, bool requires_grad) const {
  const HostedPort& port = ports_.inputs()[input];
  const DType dtype = value.dtype();
  const bool whole = dtype == DType::kI64 || dtype == DType::kI32;
  if (dtype != DType::kF32 && !(port.whole && whole)) {
    throw std::invalid_argument("the input '" + printable(port.name) + "': expected f32" +
                                (port.whole ? ", i64 or i32" : "") + ", got " +
                                std::string(dtype_name(dtype)));
  }
  return Variable(whole ? value.to(DType::kF32) : value, requires_grad && !port.whole);
}

HostedPass HostedNetwork::forward(const std::vector<Tensor>& inputs, const PassOptions& options) {
  std::optional<NoGradGuard> no_grad;
  if (!options.records) no_grad.emplace();
  HostedPass pass;
  for (std::size_t i = 0; i < inputs.size() && i < ports_.inputs().size(); ++i) {
    pass.inputs.push_back(leaf(i, inputs[i], options.input_gradients));
  }
  pass.inputs.resize(inputs.size());
  ForwardContext context{.training = training_, .rng = &rng_};
  pass.output = ports_.given((*model_)(ports_.joined(pass.inputs), context));
  return pass;
}

Variable HostedNetwork::joined(const std::vector<Tensor>& inputs) const {
  std::vector<Variable> leaves(inputs.size());
  for (std::size_t i = 0; i < inputs.size() && i < ports_.inputs().size(); ++i) {
    leaves[i] = leaf(i, inputs[i], false);
  }
  return ports_.joined(leaves);
}

void HostedNetwork::calibrate(const std::vector<std::vector<Tensor>>& batches) {
  if (batches.empty()) throw std::invalid_argument("expected at least one batch, got none");
  const NoGradGuard no_grad;
  std::vector<Tensor> samples;
  for (const std::vector<Tensor>& inputs : batches) samples.push_back(joined(inputs).value());
  qat::calibrate(*model_, std::ssize(samples),
                 [&](std::int64_t i) { return samples[static_cast<std::size_t>(i)]; });
  // So that the host's optimizer and its other processes see where they begin.
  for (const qat::NamedQuantizer& entry : qat::named_quantizers(*model_)) {
    entry.quantizer->start_learning();
  }
}

void HostedNetwork::require_finite() {
  if (const auto fault = qat::take_fault(qat::named_quantizers(*model_))) {
    throw TrainingDiverged(*fault);
  }
}

void HostedNetwork::begin_epoch(std::int64_t epoch) {
  if (epoch < 0) {
    throw std::invalid_argument("expected an epoch from 0 on, got " + std::to_string(epoch));
  }
  schedule_->on_epoch_begin(epoch);
}

void HostedNetwork::set_observing(bool on) {
  for (const auto& entry : qat::named_quantizers(*model_)) entry.quantizer->set_observing(on);
}

void HostedNetwork::set_quantizing(bool weights, bool activations) {
  for (const auto& entry : qat::named_quantizers(*model_)) {
    entry.quantizer->set_quantizing(entry.quantizer->of_weights() ? weights : activations);
  }
}

void HostedNetwork::freeze_batch_norms(bool on) {
  for (const NamedModule& entry : model_->named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm*>(entry.module)) norm->set_frozen(on);
  }
}

void HostedNetwork::set_seed(std::uint64_t seed) { rng_ = Rng(seed, kHostedStream); }

void HostedNetwork::save(const std::filesystem::path& path) const {
  save_checkpoint(path, {state_on_cpu(*model_),
                         {{kNetworkKey, imports::text_of(network_)},
                          {kPlanKey, plan_text(plan_)},
                          {kRngSeed, std::to_string(rng_.state().seed)},
                          {kRngPosition, std::to_string(rng_.state().position)}}});
}

void HostedNetwork::load(const std::filesystem::path& path) {
  const std::string source = printable(path.string());
  const Checkpoint checkpoint = load_checkpoint(path);
  const auto network = checkpoint.metadata.find(kNetworkKey);
  if (network == checkpoint.metadata.end() || network->second != imports::text_of(network_)) {
    throw InputError(source + ": expected a checkpoint of this network, got one of another");
  }
  const auto plan = checkpoint.metadata.find(kPlanKey);  // earlier versions wrote none
  if (plan != checkpoint.metadata.end()) require_same_plan(plan_text(plan_), plan->second, source);
  Rng::State random{static_cast<std::uint64_t>(recipe_.seed), kHostedStream,
                    number_in<std::uint64_t>(checkpoint.metadata, kRngPosition, source)};
  if (checkpoint.metadata.contains(kRngSeed)) {
    random.seed = number_in<std::uint64_t>(checkpoint.metadata, kRngSeed, source);
  }
  qat::require_quantizer_state(*model_, checkpoint, source);
  load_into(*model_, checkpoint.tensors, source);
  rng_ = Rng(random);
}

std::shared_ptr<Module> HostedNetwork::model_on_cpu() const {
  if (device_ == Device::cpu()) return model_;
  std::optional<qat::Plan> plan;
  std::shared_ptr<Module> copy = prepared(float_model(), plan);
  load_into(*copy, state_on_cpu(*model_), source_);
  return copy;
}

deploy::Graph HostedNetwork::graph_of(const std::shared_ptr<Module>& model) const {
  Shape one = network_.sample;
  one.insert(one.begin(), 1);
  return traced_graph({.trained = *model,
                       .deployed = model,
                       .network = &network_,
                       .batch = one,
                       .name = recipe_.name},
                      [this](deploy::Graph& graph) {
                        graph.target = TargetKind::kValues;
                        describe_ports(graph, network_);
                      });
}

deploy::Graph HostedNetwork::deployed() const { return graph_of(model_on_cpu()); }

void HostedNetwork::write(const std::filesystem::path& path, const std::string& format) const {
  const deploy::ExportFormat& row = deploy::export_format(format);
  const deploy::Graph graph = deployed();
  if (const auto why = refusal_of(graph, {format})) throw InputError(*why);
  row.write(path, graph, {.onnx = {.profile = recipe_.exports.profile}});
}

deploy::Verification HostedNetwork::verify(const std::vector<Tensor>& inputs,
                                           const std::filesystem::path& deployed) const {
  constexpr std::int64_t kBatch = 64;
  const std::shared_ptr<Module> model = model_on_cpu();
  Dataset samples;
  samples.inputs = joined(inputs).value().to(Device{});
  const std::int64_t count = samples.inputs.dim(0);
  samples.targets = Tensor::zeros({count, 1});  // nobody asks for them
  const deploy::Interpreter interpreter(deployed.empty() ? graph_of(model)
                                                         : deploy::load_graph(deployed));
  return deploy::verify(*model, interpreter, samples, count, kBatch);
}

}  // namespace steelyard
