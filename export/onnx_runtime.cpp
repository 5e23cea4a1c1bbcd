#include "export/onnx_runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "framework/files.h"
#include "kernels/elementwise.h"

extern char** environ;

namespace steelyard::deploy {
namespace {

constexpr std::uint64_t kMaxMessageBytes = 1 << 20;
constexpr std::chrono::seconds kSearchLimit{60};
constexpr std::string_view kFound = "found ";

// Arguments: model, inputs, outputs, shape of the inputs. Inputs and outputs are raw f32.
constexpr const char* kScript = R"py(
import sys
import numpy
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
inputs = numpy.fromfile(sys.argv[2], numpy.float32).reshape([int(n) for n in sys.argv[4].split(",")])
name = session.get_inputs()[0].name
with open(sys.argv[3], "wb") as outputs:
    for begin in range(0, len(inputs), 500):
        outputs.write(session.run(None, {name: inputs[begin:begin + 500]})[0].astype(numpy.float32).tobytes())
)py";

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "steelyard-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), name);
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct Finished {
  bool ok = false;
  std::string output;
  std::string errors;
};

// What a program wrote; nothing when that is no message.
std::string read_message(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) > kMaxMessageBytes) return "";
  return read_file(path, kMaxMessageBytes);
}

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

// Runs a program to its end; one that cannot be started has not succeeded.
Finished run_program(const std::vector<std::string>& command,
                     std::optional<std::chrono::seconds> limit = std::nullopt) {
  const TemporaryFolder folder;
  const std::string out = (folder / "stdout").string();
  const std::string err = (folder / "stderr").string();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {false, "", std::generic_category().message(error)};
  const bool ok = succeeds(child, limit);
  return {ok, read_message(out), read_message(err)};
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin + 1, end - begin);
}

// [N, H, W, C] as [N, C, H, W]; rank 2 as it is.
Tensor channels_first(const Tensor& x) {
  if (x.rank() != 4) return x;
  const std::int64_t pixels = x.dim(1) * x.dim(2);
  Tensor y = Tensor::empty({x.dim(0), x.dim(3), x.dim(1), x.dim(2)});
  kernels::nhwc_to_nchw(x.dim(0), pixels, x.dim(3), x.data<float>(), y.data<float>());
  return y;
}

}  // namespace

std::optional<OnnxRuntime> find_onnx_runtime(const std::string& python) {
  std::vector<std::string> candidates{python};
  if (python.empty()) {
    const char* chosen = std::getenv("STEELYARD_PYTHON");
    candidates = {chosen != nullptr ? chosen : "", "build/python-env/bin/python3", "python3"};
  }
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) continue;
    const Finished found = run_program(
        {candidate, "-c", "import numpy, onnxruntime; print('found', onnxruntime.__version__)"},
        kSearchLimit);
    const std::string line = last_line(found.output);
    if (found.ok && line.starts_with(kFound)) {
      return OnnxRuntime{candidate, printable(line.substr(kFound.size()))};
    }
  }
  return std::nullopt;
}

Tensor run_onnx(const OnnxRuntime& runtime, const std::filesystem::path& model,
                const Tensor& inputs) {
  const TemporaryFolder folder;
  const Tensor x = channels_first(inputs);
  std::string shape;
  for (const std::int64_t size : x.shape()) {
    if (!shape.empty()) shape += ',';
    shape += std::to_string(size);
  }
  write_file_atomic(folder / "inputs",
                    {static_cast<const char*>(x.raw()), static_cast<std::size_t>(x.bytes())});
  const Finished run =
      run_program({runtime.python, "-c", kScript, model.string(), (folder / "inputs").string(),
                   (folder / "outputs").string(), shape});
  if (!run.ok) {
    throw std::runtime_error("ONNX Runtime " + runtime.version + ": " + printable(model.string()) +
                             ": " + printable(last_line(run.errors)));
  }
  const InputFile file(folder / "outputs");
  const std::int64_t batch = inputs.dim(0);
  const auto floats = static_cast<std::int64_t>(file.size() / sizeof(float));
  Tensor outputs = Tensor::empty({batch, batch == 0 ? 0 : floats / batch});
  file.read(0, outputs.raw(), static_cast<std::uint64_t>(outputs.bytes()));
  return outputs;
}

}  // namespace steelyard::deploy
