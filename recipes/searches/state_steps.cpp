#include "steelyard/recipes/searches/state_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "steelyard/framework/data/arrays/array_dataset.h"
#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/named_inputs.h"
#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/import/translate.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

constexpr std::int64_t kTogether = 64;  // sequences that a network runs at once
constexpr std::int64_t kReportedSequences = 8;
constexpr std::int64_t kReportedSteps = 512;

struct StateName {
  std::string input, output;
};

// "1 sequence of 40 steps".
std::string sequences_text(std::int64_t count, std::int64_t steps) {
  return std::to_string(count) + (count == 1 ? " sequence of " : " sequences of ") +
         std::to_string(steps) + (steps == 1 ? " step" : " steps");
}

std::vector<std::string> port_names(const std::vector<imports::OnnxPort>& ports) {
  std::vector<std::string> names;
  for (const imports::OnnxPort& port : ports) names.push_back(port.name);
  return names;
}

// Throws InputError where no port is called so.
void require_port(const std::string& name, const std::vector<imports::OnnxPort>& ports,
                  const std::string& option, const char* what) {
  const std::vector<std::string> names = port_names(ports);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw InputError(option + ": the model has no " + what + " '" + printable(name) +
                   "' (it has: " + printable(join(names)) + ")");
}

std::vector<StateName> state_names(const std::vector<std::string>& options,
                                   const imports::OnnxModel& model) {
  std::vector<StateName> states;
  for (const std::string& text : options) {
    const std::string option = "--state " + printable(text);
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw InputError(option + ": expected an input and the output of the step before: h=hn");
    }
    StateName state{text.substr(0, equals), text.substr(equals + 1)};
    require_port(state.input, model.inputs, option, "input");
    require_port(state.output, model.outputs, option, "output");
    const auto repeats = [&](const StateName& other) { return other.input == state.input; };
    if (std::any_of(states.begin(), states.end(), repeats)) {
      throw InputError(option + ": the input is given twice");
    }
    states.push_back(std::move(state));
  }
  return states;
}

// The arrays of the data, a sample each: a step or a sequence.
Dataset arrays_in(const std::filesystem::path& path, const std::vector<std::string>& names) {
  const std::string source = printable(path.string()), kind = dataset_of(path);
  if (kind == "safetensors") return load_safetensors_inputs(path, names);
  if (kind != "arrays") {
    throw InputError("--state: expected sequences in --data, .npy, .npz or .safetensors, got " +
                     source + " (" + kind + ")");
  }
  if (path.extension() != ".npy") {
    return load_arrays({.path = path, .labels = false, .inputs = names}).train;
  }
  if (names.size() > 1) {
    throw InputError("--data: " + source + ": expected an array for each of " +
                     printable(join(names)) + ": .npz, .safetensors or a folder of .npy files");
  }
  Dataset named;
  const Dataset only = load_arrays({.path = path, .labels = false}).train;
  set_named_inputs(named, {{names[0], samples_of(only)}}, source);
  return named;
}

const imports::OnnxPort& port_of(const imports::OnnxModel& model, const std::string& name) {
  return *std::find_if(model.inputs.begin(), model.inputs.end(),
                       [&](const imports::OnnxPort& port) { return port.name == name; });
}

// What sequences the arrays are of, without their values.
Sequences form_of(const Dataset& arrays, const imports::OnnxModel& model,
                  const std::string& source) {
  Sequences found;
  for (const NamedInput& input : arrays.names.inputs) {
    const imports::OnnxPort& port = port_of(model, input.name);
    const std::size_t rank = std::max<std::size_t>(port.dims.size(), 2) - 1;  // of a step
    const bool is_sequence = input.shape.size() == rank + 1;
    if (!is_sequence && input.shape.size() != rank) {
      throw InputError(source + ": the model reads " + printable(input.name) + " " +
                       imports::to_string(port.dims) +
                       ": expected an array [steps, ...] of one sequence or [sequences, steps, "
                       "...], got samples " +
                       shape_string(input.shape));
    }
    const std::int64_t count = is_sequence ? arrays.size() : 1;
    const std::int64_t steps = is_sequence ? input.shape[0] : arrays.size();
    if (!found.inputs.empty() && (found.steps != steps || found.count != count)) {
      throw InputError(source + ": expected " + sequences_text(found.count, found.steps) +
                       " of the input " + printable(input.name) + ", as of " +
                       printable(found.inputs[0].name) + ", got " + sequences_text(count, steps));
    }
    found.count = count;
    found.steps = steps;
    const auto begin = input.shape.begin() + (is_sequence ? 1 : 0);
    found.inputs.push_back({input.name, Shape(begin, input.shape.end())});
  }
  return found;
}

Sequences sequences_in(const FileAndData& given, const imports::OnnxModel& model,
                       const std::vector<std::string>& names) {
  const std::string source = "--data: " + printable(given.data.string());
  const Dataset arrays = load_samples(arrays_in(given.data, names));
  if (arrays.size() == 0) throw InputError(source + ": expected 1 step or more, got 0");
  Sequences found = form_of(arrays, model, source);
  const std::int64_t of_step = arrays.inputs.size() / (found.count * found.steps);
  found.values = Tensor::zeros({found.count, found.steps, of_step});
  // A sample holds its steps of one input, then those of the next.
  const std::int64_t steps = found.count * found.steps / arrays.size();
  const float* from = arrays.inputs.data<float>();
  for (std::int64_t sample = 0; sample < arrays.size(); ++sample) {
    float* into = found.values.data<float>() + sample * steps * of_step;
    for (const NamedInput& input : found.inputs) {
      const std::int64_t size = shape_size(input.shape);
      for (std::int64_t step = 0; step < steps; ++step) {
        std::copy_n(from, size, into + step * of_step);
        from += size;
      }
      into += size;
    }
  }
  return found;
}

// Where the output of that name lies in a row of all outputs; shapes must be equal.
std::int64_t first_of_output(const imports::GraphSpec& graph, const NamedInput& state,
                             const std::string& output) {
  const auto require = [&](const Shape& shape) {
    if (shape == state.shape) return;
    throw InputError("--state " + printable(state.name) + "=" + printable(output) +
                     ": expected one shape of a sample, got " + shape_string(state.shape) +
                     " and " + shape_string(shape));
  };
  if (graph.output_parts.empty()) {
    require(graph.output_sample);
    return 0;
  }
  const auto part = std::find_if(graph.output_parts.begin(), graph.output_parts.end(),
                                 [&](const imports::PartSpec& p) { return p.port.name == output; });
  require(part->shape);
  return part->first;
}

}  // namespace

StateSteps::StateSteps(const FileAndData& given) : pairs_(given.states) {
  imports::OnnxModel model = imports::read_onnx(given.model);
  choose(model, given.choices, "--batch-axis");
  const std::vector<StateName> names = state_names(given.states, model);
  const auto state_of = [&](const std::string& input) {
    return std::find_if(names.begin(), names.end(),
                        [&](const StateName& state) { return state.input == input; });
  };
  std::vector<std::string> others;
  for (const imports::OnnxPort& port : model.inputs) {
    if (state_of(port.name) == names.end()) others.push_back(port.name);
  }
  if (others.empty()) throw InputError("--state: expected an input that is no state: data is its");
  sequences_ = sequences_in(given, model, others);
  const imports::SampleSpec sample = imports::sample_of(model, sequences_.inputs);
  inputs_ = sample.inputs;
  imports::Imported imported = imports::translate(model, sample);
  graph_ = std::move(imported.graph);
  std::int64_t first = 0;
  for (const NamedInput& input : inputs_) {
    const std::int64_t size = shape_size(input.shape);
    if (const auto state = state_of(input.name); state != names.end()) {
      states_.push_back({first, first_of_output(graph_, input, state->output), size});
    } else {
      data_.push_back({first, size});
    }
    first += size;
  }
  const std::string source = printable(given.model.string());
  float_ = imports::build(graph_, true, source);
  load_into(*float_, imported.weights, source);
}

std::string StateSteps::text() const {
  return sequences_text(sequences_.count, sequences_.steps) + ": --state " +
         printable(join(pairs_)) + " begins with zeros, and is then what the float network gives";
}

StateSteps::Rolled StateSteps::roll(Module& network, const std::vector<std::int64_t>& sequences,
                                    std::int64_t steps) const {
  const NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(sequences.size());
  const std::int64_t of_data = sequences_.values.dim(2);
  std::int64_t of_inputs = 0;
  for (const NamedInput& input : inputs_) of_inputs += shape_size(input.shape);
  Rolled rolled{Tensor::zeros({count, steps, of_inputs}), {}};
  const Tensor now = Tensor::zeros({count, of_inputs});
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t sequence = sequences[static_cast<std::size_t>(i)];
      const float* from =
          sequences_.values.data<float>() + (sequence * sequences_.steps + step) * of_data;
      float* const into = now.data<float>() + i * of_inputs;
      for (const Part& part : data_) {
        std::copy_n(from, part.size, into + part.first);
        from += part.size;
      }
      std::copy_n(into, of_inputs, rolled.inputs.data<float>() + (i * steps + step) * of_inputs);
    }
    ForwardContext context;
    const Tensor outputs = network.forward(Variable(now.clone()), context).value();
    const std::int64_t of_outputs = outputs.size() / count;
    if (!rolled.outputs.defined()) rolled.outputs = Tensor::zeros({count, steps, of_outputs});
    for (std::int64_t i = 0; i < count; ++i) {
      const float* const from = outputs.data<float>() + i * of_outputs;
      std::copy_n(from, of_outputs, rolled.outputs.data<float>() + (i * steps + step) * of_outputs);
      for (const StateSpan& state : states_) {
        std::copy_n(from + state.output, state.size,
                    now.data<float>() + i * of_inputs + state.input);
      }
    }
  }
  return rolled;
}

void StateSteps::write(const std::filesystem::path& file) const {
  TensorFile all;
  for (const NamedInput& input : inputs_) {
    Shape shape = input.shape;
    shape.insert(shape.begin(), sequences_.count * sequences_.steps);
    all.tensors.push_back({input.name, Tensor::zeros(shape)});
  }
  std::int64_t sample = 0;
  while (sample < sequences_.count * sequences_.steps) {
    std::vector<std::int64_t> sequences(static_cast<std::size_t>(
        std::min(kTogether, sequences_.count - sample / sequences_.steps)));
    std::iota(sequences.begin(), sequences.end(), sample / sequences_.steps);
    const Tensor inputs = roll(*float_, sequences, sequences_.steps).inputs;
    require_finite(inputs, "--state: what the float network gives");
    const float* from = inputs.data<float>();
    for (std::int64_t i = 0; i < inputs.dim(0) * inputs.dim(1); ++i, ++sample) {
      for (const NamedTensor& tensor : all.tensors) {
        const std::int64_t size = tensor.tensor.size() / tensor.tensor.dim(0);
        std::copy_n(from, size, tensor.tensor.data<float>() + sample * size);
        from += size;
      }
    }
  }
  create_folders(file.parent_path());
  write_safetensors(file, all);
}

std::int64_t StateSteps::reported_sequences() const {
  return std::min(kReportedSequences, sequences_.count);
}

std::int64_t StateSteps::reported_steps() const {
  return std::min(kReportedSteps, sequences_.steps);
}

Fidelity StateSteps::in_a_row(Module& quantized) const {
  std::vector<std::int64_t> sequences(static_cast<std::size_t>(reported_sequences()));
  std::iota(sequences.begin(), sequences.end(), std::int64_t{0});
  for (std::int64_t& i : sequences) i = i * sequences_.count / reported_sequences();
  const auto outputs = [&](Module& network) {
    const Tensor rolled = roll(network, sequences, reported_steps()).outputs;
    return rolled.reshape({rolled.dim(0) * rolled.dim(1), rolled.dim(2)});
  };
  return fidelity(outputs(*float_), outputs(quantized), output_spans(graph_));
}

std::string StateSteps::in_a_row_text() const {
  return sequences_text(reported_sequences(), reported_steps());
}

}  // namespace steelyard
