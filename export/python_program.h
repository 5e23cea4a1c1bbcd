// Runs scripts in a Python that has what they import.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace steelyard::deploy {

// A Python, and the version of the package that it was looked for with.
struct PythonProgram {
  std::string path;
  std::string version;
};

// The first Python that can import `package` and `others`: only `python` is tried if it is given,
// else $STEELYARD_PYTHON, the environment that scripts/python_env makes in the folder of this
// program's build, and python3. A name without a slash is looked for in the absolute folders of
// $PATH. Python runs isolated (-I): neither the current folder nor $PYTHONPATH nor packages of a
// user alone give it modules.
std::optional<PythonProgram> find_python(const std::string& python, const std::string& package,
                                         const std::vector<std::string>& others = {});

// A file without a name: it disappears however this program ends.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ScratchFile& operator=(ScratchFile&&) = delete;
  int descriptor() const { return descriptor_; }

  std::uint64_t size() const;
  void fill(const void* data, std::uint64_t bytes) const;
  // Bytes from an offset on, which must be there.
  void read(void* into, std::uint64_t bytes, std::uint64_t offset = 0) const;
  // The text that a program wrote; nothing if it wrote none, or more than a message has.
  std::string message() const;

 private:
  int descriptor_ = -1;
};

// A script ended with an error: the text is that of its exception, or what it said last.
class PythonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a script writes for these arguments and this input. Python runs isolated and ends with this
// process, however that ends. Throws PythonError.
ScratchFile run_script(const std::string& python, const char* script,
                       const std::vector<std::string>& arguments, const ScratchFile& input);

}  // namespace steelyard::deploy
