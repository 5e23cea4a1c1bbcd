#include "steelyard/export/onnx_runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "steelyard/framework/files/files.h"

namespace steelyard::deploy {
namespace {

constexpr std::uint64_t kMaxMessageBytes = 1 << 20;
constexpr std::chrono::seconds kSearchLimit{60};
constexpr std::string_view kFound = "found ";
constexpr std::string_view kCannotLoad = "cannot load: ";  // as kScript says it

// Arguments: the value of session.x64quantprecision, for each output the order of images and which
// dimension is the batch ("NCHW@0,NHWC@1"), what is done ("run", "join", or "20@2": 20 timed rounds
// on two threads, 0 for its own choice), the shape of the inputs, the number of models, these, and
// for each input the first of its values in a sample, its shape with channels last and its order
// ("0:28,28,3:NCHW@0"). It reads inputs and writes the outputs as raw f32; or the median
// milliseconds of each model; or as f64, of a joined file, its first and its second part, how many
// numbers the outputs have, how many are others than those that the parts give one after the other,
// and by how much. What a library prints goes to standard error.
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
whole = {"tensor(int32)": numpy.int32, "tensor(int64)": numpy.int64, "tensor(bool)": bool}
def fed(session, some):
    return {port.name: of_port(port, part, some) for port, part in zip(session.get_inputs(), parts)}
def of_port(port, part, some):
    first, shape, place = part.split(":")
    order, batch = place.split("@")
    shape = [int(n) for n in shape.split(",") if n]
    x = some.reshape(len(some), -1)[:, int(first):int(first) + int(numpy.prod(shape))]
    x = x.reshape([len(some)] + shape).astype(whole.get(port.type, numpy.float32))
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

// A file without a name: it disappears however this program ends.
class ScratchFile {
 public:
  ScratchFile() {
    std::string name = (std::filesystem::temp_directory_path() / "steelyard-XXXXXX").string();
    descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), name);
    unlink(name.c_str());
  }
  ~ScratchFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ScratchFile(ScratchFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ScratchFile& operator=(ScratchFile&&) = delete;
  int descriptor() const { return descriptor_; }

  std::uint64_t size() const {
    struct stat info = {};
    return fstat(descriptor_, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  }

  void fill(const void* data, std::uint64_t bytes) const {
    transfer(bytes, [&](std::uint64_t at) {
      return pwrite(descriptor_, static_cast<const char*>(data) + at, bytes - at,
                    static_cast<off_t>(at));
    });
  }
  void read(void* into, std::uint64_t bytes) const {
    transfer(bytes, [&](std::uint64_t at) {
      return pread(descriptor_, static_cast<char*>(into) + at, bytes - at, static_cast<off_t>(at));
    });
  }
  // The text that a program wrote; nothing if it wrote none.
  std::string message() const {
    if (size() > kMaxMessageBytes) return "";
    std::string text(size(), '\0');
    read(text.data(), text.size());
    return text;
  }

 private:
  template <typename F>
  static void transfer(std::uint64_t bytes, const F& f) {
    for (std::uint64_t at = 0; at < bytes;) {
      const ssize_t done = f(at);
      if (done == 0) errno = EIO;
      if (done <= 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "a temporary file");
      }
      if (done > 0) at += static_cast<std::uint64_t>(done);
    }
  }

  int descriptor_ = -1;
};

// Whether the child ended by itself with status 0. Past the limit it is killed.
bool succeeds(pid_t child, std::optional<std::chrono::seconds> limit) {
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &status, limit ? WNOHANG : 0);
    if (ended == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended < 0 && errno != EINTR) return false;
    if (!limit) continue;
    if (std::chrono::steady_clock::now() - begin > *limit) {
      kill(child, SIGKILL);
      limit.reset();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

// Only what a child of a process with threads may call.
void redirect(int from, int to) {
  if (from == to) {
    fcntl(from, F_SETFD, 0);  // dup2() would leave it to be closed by exec
  } else {
    dup2(from, to);
  }
}

// Runs the program of that path to its end; one that cannot be started has not succeeded. It is
// killed when this process ends before it.
bool run_program(const std::vector<std::string>& command, const ScratchFile& input,
                 const ScratchFile& output, const ScratchFile& errors,
                 std::optional<std::chrono::seconds> limit = std::nullopt) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // ended before prctl()
    redirect(input.descriptor(), STDIN_FILENO);
    redirect(output.descriptor(), STDOUT_FILENO);
    redirect(errors.descriptor(), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return child > 0 && succeeds(child, limit);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin + 1, end - begin);
}

// Why Python failed: the lines after its last traceback, joined to one.
std::string exception_text(const std::string& errors) {
  std::size_t begin = errors.rfind("Traceback (");
  if (begin == std::string::npos) return last_line(errors);
  do {
    begin = errors.find('\n', begin);
    if (begin == std::string::npos) return last_line(errors);
    ++begin;
  } while (begin < errors.size() && errors[begin] == ' ');
  std::string text = errors.substr(begin, errors.find_last_not_of("\n ") + 1 - begin);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

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
    text += (text.empty() ? "" : ",") + place_text(part.port);
  }
  return text.empty() ? place_text(ports.output) : text;
}

// The path of Python in the environment that scripts/python_env made in build/, if this program is
// build/cpu/cli/steelyard; else "": an installed program's grandparent folder may be anybody's.
std::string python_of_build() {
  std::error_code unknown;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  const auto build = folder.parent_path();
  if (folder.filename() != "cli" || !std::filesystem::exists(build / "CMakeCache.txt", unknown)) {
    return "";
  }
  return (build.parent_path() / "python-env/bin/python3").string();
}

// The program's path, found as a shell finds it but for the entries of $PATH that name the current
// folder or one below it; "" where there is none.
std::string path_of_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
  while (!name.empty() && !rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const std::string program = std::string(folder) + "/" + name;
    if (folder.starts_with('/') && access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

// What the script writes for inputs f32 [N, ...].
ScratchFile output_of_script(const OnnxRuntime& runtime,
                             const std::vector<std::filesystem::path>& models, const Tensor& inputs,
                             Session session, const std::string& task, const OnnxPorts& ports) {
  // Python would wait for the writer of a named pipe.
  for (const std::filesystem::path& model : models) const InputFile regular(model);
  const ScratchFile input;
  ScratchFile output;
  const ScratchFile errors;
  input.fill(inputs.raw(), static_cast<std::uint64_t>(inputs.bytes()));
  std::vector<std::string> command{runtime.python,
                                   "-I",
                                   "-c",
                                   kScript,
                                   session == Session::kExact ? "1" : "0",
                                   places_text(ports),
                                   task,
                                   sizes_text(inputs.shape()),
                                   std::to_string(models.size())};
  for (const std::filesystem::path& model : models) command.push_back(model.string());
  for (const PartPort& part : ports.inputs) command.push_back(part_text(part));
  if (ports.inputs.empty()) {
    const Shape& shape = inputs.shape();
    command.push_back(part_text({ports.input, 0, {shape.begin() + 1, shape.end()}}));
  }
  if (run_program(command, input, output, errors)) return output;
  constexpr std::size_t kMaxTextBytes = 600;
  const std::string text = exception_text(errors.message());
  const std::string name = printable(models.front().string());
  if (text.starts_with(kCannotLoad)) {
    throw OnnxFileError(name + ": ONNX Runtime " + runtime.version + " cannot load it: " +
                        printable(text.substr(kCannotLoad.size()), kMaxTextBytes));
  }
  throw std::runtime_error("ONNX Runtime " + runtime.version + ": " + name + ": " +
                           printable(text, kMaxTextBytes));
}

}  // namespace

std::optional<OnnxRuntime> find_onnx_runtime(const std::string& python) {
  std::vector<std::string> candidates{python};
  if (python.empty()) {
    const char* chosen = std::getenv("STEELYARD_PYTHON");
    candidates = {chosen != nullptr ? chosen : "", python_of_build(), "python3"};
  }
  for (const std::string& candidate : candidates) {
    const std::string program = path_of_program(candidate);
    if (program.empty()) continue;
    const ScratchFile input;
    const ScratchFile output;
    const ScratchFile errors;
    const bool ran = run_program(
        {program, "-I", "-c", "import numpy, onnxruntime; print('found', onnxruntime.__version__)"},
        input, output, errors, kSearchLimit);
    const std::string line = last_line(output.message());
    if (ran && line.starts_with(kFound)) {
      return OnnxRuntime{program, printable(line.substr(kFound.size()))};
    }
  }
  return std::nullopt;
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
