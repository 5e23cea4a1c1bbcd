#include "steelyard/export/onnx/onnx_runtime.h"

#include <array>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "steelyard/framework/files/files.h"

namespace steelyard::deploy {
namespace {

constexpr std::string_view kCannotLoad = "cannot load: ";  // as kScript says it

// Arguments: the value of session.x64quantprecision, for each output the order of images and which
// dimension is the batch ("NCHW@0,NHWC@1"), what is done ("run", "alone", "join", or "20@2": 20
// timed rounds on two threads, 0 for its own choice), the shape of the inputs, the number of
// models, these, and for each input the first of its values in a sample, its shape with channels
// last and its order
// ("0:28,28,3:NCHW@0"). It reads inputs and writes the outputs as raw f32; or the median
// milliseconds of each model; or as f64, for each output of each sample, whether it is of whole
// numbers, how many they are, and these; or as f64, of a joined file, its first and its second
// part, how many numbers the outputs have, how many are others than those that the parts give one
// after the other, and by how much. What a library prints goes to standard error.
constexpr const char* kScript = R"py(
import os
import sys
outputs = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
import time
import numpy
import onnxruntime
precision, orders, task, shape, count, *rest = sys.argv[1:]
models, parts = rest[:int(count)], rest[int(count):]
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.add_session_config_entry("session.x64quantprecision", precision)
options.intra_op_num_threads = int(task.split("@")[1]) if "@" in task else 0
try:
    sessions = [onnxruntime.InferenceSession(m, options, providers=["CPUExecutionProvider"]) for m in models]
except Exception as error:
    sys.exit("cannot load: " + " ".join(str(error).split()))
inputs = numpy.fromfile(sys.stdin.buffer, numpy.float32).reshape([int(n) for n in shape.split(",")])
types = {"tensor(int32)": numpy.int32, "tensor(int64)": numpy.int64, "tensor(bool)": bool,
         "tensor(float16)": numpy.float16, "tensor(double)": numpy.float64}
def fed(session, some):
    return {port.name: of_port(port, part, some) for port, part in zip(session.get_inputs(), parts)}
def of_port(port, part, some):
    first, shape, place = part.split(":")
    order, batch = place.split("@")
    shape = [int(n) for n in shape.split(",") if n]
    x = some.reshape(len(some), -1)[:, int(first):int(first) + int(numpy.prod(shape))]
    x = x.reshape([len(some)] + shape).astype(types.get(port.type, numpy.float32))
    return numpy.moveaxis(x.transpose(0, 3, 1, 2) if x.ndim == 4 and order == "NCHW" else x, 0, int(batch))
def row(y, place):
    order, batch = place.split("@")
    y = numpy.moveaxis(y.astype(numpy.float32), int(batch), 0)
    return (y.transpose(0, 2, 3, 1) if y.ndim == 4 and order == "NCHW" else y).reshape(len(y), -1)
def differing(x, y):
    if x.shape != y.shape or x.dtype != y.dtype:
        return numpy.array([max(x.size, y.size, 1), max(x.size, y.size, 1), numpy.inf])
    if x.dtype.kind != "f":
        return numpy.array([x.size, numpy.count_nonzero(x != y), 0.0])
    difference = numpy.where(x == y, 0, numpy.abs(x.astype(float) - y))
    difference[numpy.isnan(x) & numpy.isnan(y)] = 0
    return numpy.array([x.size, numpy.count_nonzero(~(difference <= 1e-5 * numpy.maximum(numpy.abs(x), 1))),
                        difference.max(initial=0)])
if task == "join":
    joined, body, behind = sessions
    totals = numpy.zeros(3)
    for i in range(len(inputs)):
        given = fed(joined, inputs[i:i + 1])
        names = [port.name for port in body.get_outputs()]
        values = dict(zip(names, body.run(None, {port.name: given[port.name] for port in body.get_inputs()})))
        read = {port.name: {**given, **values}[port.name] for port in behind.get_inputs()}
        values.update(zip([port.name for port in behind.get_outputs()], behind.run(None, read)))
        for port, y in zip(joined.get_outputs(), joined.run(None, given)):
            one = differing(y, values[port.name])
            totals = numpy.array([*(totals[:2] + one[:2]), max(totals[2], one[2])])
    outputs.write(totals.tobytes())
    outputs.close()
    sys.exit()
if task == "alone":
    for i in range(len(inputs)):
        for y in sessions[0].run(None, fed(sessions[0], inputs[i:i + 1])):
            known = isinstance(y, numpy.ndarray) and y.dtype.kind in "fiub"
            y = y if known else numpy.zeros(0)
            header = [float(y.dtype.kind != "f"), float(y.size)]
            outputs.write(numpy.concatenate([header, y.astype(numpy.float64).ravel()]).tobytes())
    outputs.close()
    sys.exit()
if task != "run":
    rounds = int(task.split("@")[0])
    feeds = [fed(session, inputs) for session in sessions]
    times = []
    for _ in range(rounds + 1):
        for session, x in zip(sessions, feeds):
            begin = time.perf_counter()
            session.run(None, x)
            times.append(1000 * (time.perf_counter() - begin))
    medians = numpy.median(numpy.reshape(times, (-1, len(sessions)))[1:], axis=0)
    outputs.write(medians.astype(numpy.float32).tobytes())
    outputs.close()
    sys.exit()
for begin in range(0, len(inputs), 500):
    given = sessions[0].run(None, fed(sessions[0], inputs[begin:begin + 500]))
    outputs.write(numpy.concatenate([row(y, place) for y, place in zip(given, orders.split(","))], axis=1).tobytes())
outputs.close()
)py";

// "1,28,28,3".
std::string sizes_text(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    if (!text.empty()) text += ',';
    text += std::to_string(size);
  }
  return text;
}

// The order of its images, and which dimension the batch is: "NCHW@0".
std::string place_text(const Port& port) {
  return (port.channels_last ? "NHWC@" : "NCHW@") + std::to_string(port.batch_axis);
}

std::string part_text(const PartPort& part) {
  return std::to_string(part.first) + ":" + sizes_text(part.shape) + ":" + place_text(part.port);
}

std::string places_text(const OnnxPorts& ports) {
  std::string text;
  for (const PartPort& part : ports.outputs) {
    if (!text.empty()) text += ',';
    text += place_text(part.port);
  }
  return text.empty() ? place_text(ports.output) : text;
}

// What the script writes for inputs f32 [N, ...].
ScratchFile output_of_script(const OnnxRuntime& runtime,
                             const std::vector<std::filesystem::path>& models, const Tensor& inputs,
                             Session session, const std::string& task, const OnnxPorts& ports) {
  // Python would wait for the writer of a named pipe.
  for (const std::filesystem::path& model : models) const InputFile regular(model);
  const ScratchFile input;
  input.fill(inputs.raw(), static_cast<std::uint64_t>(inputs.bytes()));
  std::vector<std::string> arguments{session == Session::kExact ? "1" : "0", places_text(ports),
                                     task, sizes_text(inputs.shape()),
                                     std::to_string(models.size())};
  for (const std::filesystem::path& model : models) arguments.push_back(model.string());
  for (const PartPort& part : ports.inputs) arguments.push_back(part_text(part));
  if (ports.inputs.empty()) {
    const Shape& shape = inputs.shape();
    arguments.push_back(part_text({ports.input, 0, {shape.begin() + 1, shape.end()}}));
  }
  try {
    return run_script(runtime.path, kScript, arguments, input);
  } catch (const PythonError& error) {
    constexpr std::size_t kMaxTextBytes = 600;
    const std::string text = error.what();
    const std::string name = printable(models.front().string());
    if (text.starts_with(kCannotLoad)) {
      throw OnnxFileError(name + ": ONNX Runtime " + runtime.version + " cannot load it: " +
                          printable(text.substr(kCannotLoad.size()), kMaxTextBytes));
    }
    throw std::runtime_error("ONNX Runtime " + runtime.version + ": " + name + ": " +
                             printable(text, kMaxTextBytes));
  }
}

}  // namespace

std::optional<OnnxRuntime> find_onnx_runtime(const std::string& python) {
  return find_python(python, "onnxruntime", {"numpy"});
}

Tensor run_onnx(const OnnxRuntime& runtime, const std::filesystem::path& model,
                const Tensor& inputs, Session session, const OnnxPorts& ports) {
  const ScratchFile output = output_of_script(runtime, {model}, inputs, session, "run", ports);
  const std::int64_t batch = inputs.dim(0);
  const auto floats = static_cast<std::int64_t>(output.size() / sizeof(float));
  Tensor outputs = Tensor::empty({batch, batch == 0 ? 0 : floats / batch});
  output.read(outputs.raw(), static_cast<std::uint64_t>(outputs.bytes()));
  return outputs;
}

std::vector<std::vector<OnnxValues>> run_onnx_alone(const OnnxRuntime& runtime,
                                                    const std::filesystem::path& model,
                                                    const Tensor& inputs, const OnnxPorts& ports) {
  const ScratchFile output =
      output_of_script(runtime, {model}, inputs, Session::kExact, "alone", ports);
  std::vector<double> numbers(output.size() / sizeof(double));
  output.read(numbers.data(), numbers.size() * sizeof(double));
  std::vector<OnnxValues> all;
  for (auto at = numbers.begin(); at < numbers.end();) {
    const bool whole = at[0] != 0;
    const auto begin = at + 2, end = begin + static_cast<std::ptrdiff_t>(at[1]);
    all.push_back({whole, {begin, end}});
    at = end;
  }
  const std::size_t samples = static_cast<std::size_t>(inputs.dim(0));
  std::vector<std::vector<OnnxValues>> found(samples);
  for (std::size_t i = 0; i < all.size(); ++i) {
    found[i / (all.size() / samples)].push_back(std::move(all[i]));
  }
  return found;
}

JoinedComparison compare_joined(const OnnxRuntime& runtime, const std::filesystem::path& joined,
                                const std::filesystem::path& body,
                                const std::filesystem::path& rest, const Tensor& inputs,
                                const OnnxPorts& ports) {
  const ScratchFile output =
      output_of_script(runtime, {joined, body, rest}, inputs, Session::kExact, "join", ports);
  std::array<double, 3> found = {};
  output.read(found.data(), sizeof found);
  return {static_cast<std::int64_t>(found[0]), static_cast<std::int64_t>(found[1]),
          static_cast<float>(found[2])};
}

std::vector<float> time_onnx(const OnnxRuntime& runtime,
                             const std::vector<std::filesystem::path>& models, const Tensor& inputs,
                             const OnnxPorts& ports, Session session, int threads) {
  const ScratchFile output =
      output_of_script(runtime, models, inputs, session, "20@" + std::to_string(threads), ports);
  std::vector<float> milliseconds(models.size());
  output.read(milliseconds.data(), milliseconds.size() * sizeof(float));
  return milliseconds;
}

}  // namespace steelyard::deploy
