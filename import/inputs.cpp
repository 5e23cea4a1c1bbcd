#include "steelyard/import/inputs.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {
namespace {

// `dims`: without the batch.
bool matches(const std::vector<OnnxDim>& dims, const Shape& shape) {
  return std::equal(
      dims.begin(), dims.end(), shape.begin(), shape.end(),
      [](const OnnxDim& dim, std::int64_t size) { return dim.size.value_or(size) == size; });
}

// [H, W, C] as [C, H, W].
Shape channels_first(const Shape& sample) {
  Shape shape = sample;
  std::rotate(shape.begin(), shape.end() - 1, shape.end());
  return shape;
}

// Nothing where samples of that shape are no input of such dimensions without the batch. Images
// without a dimension of channels have one channel, and one value needs no dimension. Where the
// batch is not first, the others have the file's order.
std::optional<InputForm> form_of(const std::vector<OnnxDim>& dims, const Shape& sample,
                                 bool batch_first) {
  if (!batch_first) {
    return matches(dims, sample) ? std::optional(InputForm{sample, sample, false}) : std::nullopt;
  }
  if (sample.size() == 3 && matches(dims, channels_first(sample))) {
    return InputForm{channels_first(sample), sample, true};
  }
  if (matches(dims, sample)) return InputForm{sample, sample, false};
  if (sample == Shape{1} && matches(dims, {})) return InputForm{{}, {}, false};  // one value
  if (sample.size() == 3 && sample[2] == 1) {
    const Shape image{sample[0], sample[1]};
    if (matches(dims, image)) return InputForm{image, image, false};
  }
  if (sample.size() == 2) {
    const Shape first{1, sample[0], sample[1]}, last{sample[0], sample[1], 1};
    if (matches(dims, first)) return InputForm{first, last, true};
    if (matches(dims, last)) return InputForm{last, last, false};
  }
  return std::nullopt;
}

std::string called(const OnnxPort& port) { return "the input '" + printable(port.name) + "'"; }

[[noreturn]] void fail_unknown_input(const OnnxModel& model, const std::string& name) {
  fail(model, "no input is called '" + printable(name) + "'; there are " +
                  printable(names_of(model.inputs)));
}

bool is_called(const OnnxDim& dim, const std::string& name) {
  return !dim.size && dim.name == name;
}

bool says_batch(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("batch") != std::string::npos;
}

// The name that the batch has in all inputs of which nobody said where it is; "" where none has it.
std::string batch_name(const OnnxModel& model) {
  const auto unsaid = [](const OnnxPort& port) { return !port.batch_axis; };
  const auto any = std::find_if(model.inputs.begin(), model.inputs.end(), unsaid);
  if (any == model.inputs.end()) return "";
  std::string best;
  std::pair<bool, std::int64_t> best_rank{false, 0};  // what it says, how often it is first
  for (const OnnxDim& dim : any->dims) {
    if (dim.size || dim.name.empty()) continue;
    std::pair<bool, std::int64_t> rank{says_batch(dim.name), 0};
    const auto has_it = [&](const OnnxPort& port) {
      if (!unsaid(port)) return true;
      if (!port.dims.empty() && is_called(port.dims[0], dim.name)) ++rank.second;
      return std::count_if(port.dims.begin(), port.dims.end(),
                           [&](const OnnxDim& other) { return is_called(other, dim.name); }) == 1;
    };
    if (!std::all_of(model.inputs.begin(), model.inputs.end(), has_it) || rank <= best_rank)
      continue;
    best = dim.name;
    best_rank = rank;
  }
  return best;
}

// Whether an operation that takes images as ONNX lays them out, channels first, reads the input.
bool is_read_channels_first(const OnnxModel& model, const OnnxPort& port) {
  static const std::set<std::string> kImageOperations{
      "AveragePool",   "BatchNormalization",    "Conv", "ConvTranspose", "GlobalAveragePool",
      "GlobalMaxPool", "InstanceNormalization", "LRN",  "MaxPool",       "GroupNormalization"};
  return std::any_of(model.nodes.begin(), model.nodes.end(), [&](const OnnxNode& node) {
    return kImageOperations.contains(node.op) && node.input(0) == port.name;
  });
}

// What the file says, images as [H, W, C]; nothing where a size is free.
std::optional<Shape> shape_of(const OnnxModel& model, const OnnxPort& port) {
  Shape shape;
  const std::size_t batch = batch_axis(model, port);
  for (const OnnxDim& dim : sample_dims(port, batch)) {
    if (!dim.size) return std::nullopt;
    shape.push_back(*dim.size);
  }
  if (batch != 0) return shape;
  // [C, H, W] unless only the other order looks like an image's.
  const bool looks_channels_last = shape.size() == 3 && shape[2] <= 4 && shape[0] > 4;
  if (shape.size() == 3 && (!looks_channels_last || is_read_channels_first(model, port))) {
    std::rotate(shape.begin(), shape.begin() + 1, shape.end());
  }
  return shape;
}

// How many they are. Data and memory hold fewer than any file may ask for.
std::int64_t values_of(const OnnxModel& model, const NamedInput& input) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  std::int64_t values = 1;
  for (const std::int64_t size : input.shape) {
    if (size < 1 || size > kMost / values) {
      fail(model, "the input '" + printable(input.name) + "': samples of " +
                      shape_string(input.shape) + " are too large, or empty");
    }
    values *= size;
  }
  return values;
}

PlacedInput placed(const OnnxModel& model, const OnnxPort& port, const Shape& sample) {
  const std::size_t batch = batch_axis(model, port);
  const auto form = form_of(sample_dims(port, batch), sample, batch == 0);
  if (!form) {
    const std::string as = sample.size() == 3 ? " (image [height, width, channels])" : "";
    fail(model, called(port) + " is " + to_string(port.dims) + ", the data has samples of " +
                    shape_string(sample) + as);
  }
  PlacedInput input{.port = {.name = port.name}, .form = *form};
  const OnnxDim& dim = port.dims[batch];
  if (!dim.size && !dim.name.empty()) input.port.batch = dim.name;
  input.port.batch_axis = static_cast<std::int64_t>(batch);
  input.port.channels_last = form->held.size() == 3 && !form->channels_last;
  if (is_whole(port)) input.port.type = port.type;
  input.is_part = form->held != sample;
  return input;
}

}  // namespace

std::string names_of(const std::vector<OnnxPort>& ports) {
  std::string names;
  for (const OnnxPort& port : ports) names += (names.empty() ? "" : ", ") + port.name;
  return names;
}

bool is_whole(const OnnxPort& port) {
  return port.type == "int32" || port.type == "int64" || port.type == "bool";
}

void fail(const OnnxModel& model, const std::string& why) {
  throw InputError(printable(model.source) + ": " + why);
}

std::size_t batch_axis(const OnnxModel& model, const OnnxPort& input) {
  if (input.batch_axis) return *input.batch_axis;
  const std::string name = batch_name(model);
  const auto found = std::find_if(input.dims.begin(), input.dims.end(), [&](const OnnxDim& dim) {
    return !name.empty() && is_called(dim, name);
  });
  return found == input.dims.end() ? 0 : static_cast<std::size_t>(found - input.dims.begin());
}

std::vector<OnnxDim> sample_dims(const OnnxPort& port, std::size_t batch_axis) {
  std::vector<OnnxDim> dims = port.dims;
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(batch_axis));
  return dims;
}

void choose_batch_axes(OnnxModel& model, const std::vector<BatchAxis>& axes) {
  for (const BatchAxis& given : axes) {
    const auto port =
        std::find_if(model.inputs.begin(), model.inputs.end(), [&](const auto& input) {
          return input.name == given.input || (given.input.empty() && model.inputs.size() == 1);
        });
    if (port == model.inputs.end()) fail_unknown_input(model, given.input);
    if (given.axis < 0 || given.axis >= std::ssize(port->dims)) {
      fail(model, called(*port) + " " + to_string(port->dims) + " has no dimension " +
                      std::to_string(given.axis) + " (the first is 0) for the batch");
    }
    port->batch_axis = static_cast<std::size_t>(given.axis);
  }
}

void require_inputs(const OnnxModel& model) {
  if (model.inputs.empty()) fail(model, "expected an input, got none");
  for (const OnnxPort& port : model.inputs) {
    if (port.dims.empty()) fail(model, called(port) + " has no shape with a batch");
  }
  const OnnxPort& first = model.inputs[0];
  const auto batch_of = [&](const OnnxPort& port) {
    return port.dims[batch_axis(model, port)].size;
  };
  for (const OnnxPort& port : model.inputs) {
    if (batch_of(port) == batch_of(first)) continue;
    fail(model, "expected one batch for all inputs, got " + called(first) + " " +
                    to_string(first.dims) + " and " + called(port) + " " + to_string(port.dims) +
                    ": say which dimension of an input is the batch (--batch-axis " +
                    printable(port.name) + "=1, or model.batch_axis; the first is 0)");
  }
}

std::vector<PlacedInput> placed_inputs(const OnnxModel& model, const SampleSpec& sample) {
  if (sample.inputs.empty() && model.inputs.size() == 1) {
    return {placed(model, model.inputs[0], sample.shape)};
  }
  if (sample.inputs.empty()) {
    fail(model, "the inputs are " + printable(names_of(model.inputs)) +
                    ", the data has one: data.inputs names those of the data");
  }
  std::vector<PlacedInput> inputs;
  for (const OnnxPort& port : model.inputs) {
    std::int64_t first = 0;
    const NamedInput* found = nullptr;
    for (const NamedInput& input : sample.inputs) {
      if (input.name == port.name) found = &input;
      if (found == nullptr) first += shape_size(input.shape);
    }
    if (found == nullptr) fail(model, "the data has no input '" + printable(port.name) + "'");
    inputs.push_back(placed(model, port, found->shape));
    inputs.back().first = first;
    inputs.back().is_part = true;
  }
  for (const NamedInput& input : sample.inputs) {
    const bool read = std::any_of(model.inputs.begin(), model.inputs.end(),
                                  [&](const OnnxPort& port) { return port.name == input.name; });
    if (!read) fail_unknown_input(model, input.name);
  }
  return inputs;
}

SampleSpec sample_of(const OnnxModel& model, const std::vector<NamedInput>& given) {
  require_inputs(model);
  const bool one = model.inputs.size() == 1;
  SampleSpec sample{};
  for (const OnnxPort& port : model.inputs) {
    const auto said = std::find_if(given.begin(), given.end(), [&](const NamedInput& input) {
      return input.name == port.name || (one && input.name.empty());
    });
    const auto shape = said == given.end() ? shape_of(model, port) : std::optional(said->shape);
    if (!shape) {
      const std::string name = one ? "48,192,3" : port.name + "=16";
      fail(model, called(port) + " " + to_string(port.dims) +
                      " has free sizes: say the shape of a sample (--sample " + name + ")");
    }
    sample.inputs.push_back({port.name, *shape});
  }
  for (const NamedInput& input : given) {
    const bool known = std::any_of(model.inputs.begin(), model.inputs.end(), [&](const auto& port) {
      return port.name == input.name || (one && input.name.empty());
    });
    if (!known) fail_unknown_input(model, input.name);
  }
  std::int64_t values = 0;
  for (const NamedInput& input : sample.inputs) values += values_of(model, input);
  if (one) return sample.inputs[0].shape;
  sample.shape = {values};
  return sample;
}

}  // namespace steelyard::imports
