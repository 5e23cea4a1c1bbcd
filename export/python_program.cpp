#include "steelyard/export/python_program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

#include "steelyard/framework/tensor/printable.h"

namespace steelyard::deploy {
namespace {

constexpr std::uint64_t kMaxMessageBytes = 1 << 20;
constexpr std::chrono::seconds kSearchLimit{60};
constexpr std::string_view kFound = "found ";

template <typename F>
void transfer(std::uint64_t bytes, const F& f) {
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t done = f(at);
    if (done == 0) errno = EIO;
    if (done <= 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "a temporary file");
    }
    if (done > 0) at += static_cast<std::uint64_t>(done);
  }
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

}  // namespace

ScratchFile::ScratchFile() {
  std::string name = (std::filesystem::temp_directory_path() / "steelyard-XXXXXX").string();
  descriptor_ = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), name);
  unlink(name.c_str());
}

ScratchFile::~ScratchFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::uint64_t ScratchFile::size() const {
  struct stat info = {};
  return fstat(descriptor_, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

void ScratchFile::fill(const void* data, std::uint64_t bytes) const {
  transfer(bytes, [&](std::uint64_t at) {
    return pwrite(descriptor_, static_cast<const char*>(data) + at, bytes - at,
                  static_cast<off_t>(at));
  });
}

void ScratchFile::read(void* into, std::uint64_t bytes, std::uint64_t offset) const {
  transfer(bytes, [&](std::uint64_t at) {
    return pread(descriptor_, static_cast<char*>(into) + at, bytes - at,
                 static_cast<off_t>(offset + at));
  });
}

std::string ScratchFile::message() const {
  if (size() > kMaxMessageBytes) return "";
  std::string text(size(), '\0');
  read(text.data(), text.size());
  return text;
}

std::optional<PythonProgram> find_python(const std::string& python, const std::string& package,
                                         const std::vector<std::string>& others) {
  std::string script = "import " + package;
  for (const std::string& other : others) script += ", " + other;
  script += "; print('found', " + package + ".__version__)";
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
    const bool ran =
        run_program({program, "-I", "-c", script}, input, output, errors, kSearchLimit);
    const std::string line = last_line(output.message());
    if (ran && line.starts_with(kFound)) {
      return PythonProgram{program, printable(line.substr(kFound.size()))};
    }
  }
  return std::nullopt;
}

ScratchFile run_script(const std::string& python, const char* script,
                       const std::vector<std::string>& arguments, const ScratchFile& input) {
  ScratchFile output;
  const ScratchFile errors;
  std::vector<std::string> command{python, "-I", "-c", script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (run_program(command, input, output, errors)) return output;
  throw PythonError(exception_text(errors.message()));
}

}  // namespace steelyard::deploy
