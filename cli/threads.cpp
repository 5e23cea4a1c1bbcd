#include <fmt/core.h>
#include <omp.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "cli/hangup.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/tensor/cpus.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard::cli {
namespace {

std::optional<int> thread_count(const std::string& text) {
  const auto value = parse_integer(text);
  if (!value || *value < 1 || *value > kMostThreads) return {};
  return static_cast<int>(*value);
}

std::string wrong_count(const std::string& text) {
  return "expected a whole number from 1 to " + std::to_string(kMostThreads) + ", got " +
         quote_for_message(text);
}

// OMP_NUM_THREADS, which may hold a number for each level of nesting: "4,2". Nothing where it is
// unset or empty.
std::optional<int> threads_of_environment() {
  const char* const value = std::getenv("OMP_NUM_THREADS");
  if (value == nullptr || *value == '\0') return {};
  const std::string text = value;
  std::string outermost = text.substr(0, text.find(','));
  outermost.erase(0, outermost.find_first_not_of(' '));
  outermost.erase(outermost.find_last_not_of(' ') + 1);
  const auto count = thread_count(outermost);
  if (!count) throw InputError("OMP_NUM_THREADS: " + wrong_count(text));
  return count;
}

// How often an idle thread looks for work before it sleeps; docs/design_history.md has the
// measurement.
constexpr const char* kTurnsBeforeSleep = "10000";

}  // namespace

void shorten_spinning(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;
  }
  std::array<char, 4096> program{};
  const ssize_t size = readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (size <= 0 || setenv("GOMP_SPINCOUNT", kTurnsBeforeSleep, 0) != 0) return;
  ignore_hangup_as_at_start();  // what is ignored, unlike a handler, outlasts execv()
  execv(program.data(), argv);  // returns only where it fails: then threads spin
}

void use_default_threads() {
  const int wanted = threads_of_environment().value_or(usable_cpus());
  kernels::set_num_threads(wanted);
  if (const int used = kernels::num_threads(); used < wanted && std::getenv("OMP_NUM_THREADS")) {
    print_note(fmt::format("OMP_THREAD_LIMIT: {} of {} threads are used", used, wanted));
  }
}

void add_threads(CLI::App& verb) {
  // CLI11 reads "010" as octal.
  const auto check = [](const std::string& text) -> std::string {
    const auto count = thread_count(text);
    if (!count) return wrong_count(text);
    const int limit = omp_get_thread_limit();
    if (*count > limit) return "OMP_THREAD_LIMIT allows " + std::to_string(limit) + ", got " + text;
    return "";
  };
  verb.add_option_function<int>(
          "--threads", [](int) {},
          "CPU threads (default: OMP_NUM_THREADS, else the processors that the affinity mask and "
          "the control group allow)")
      ->check(CLI::Validator(check, "1 to " + std::to_string(kMostThreads)));
}

void set_threads_of(const CLI::App& verb) {
  const CLI::Option* const threads = verb.get_option_no_throw("--threads");
  if (threads != nullptr && !threads->empty()) kernels::set_num_threads(threads->as<int>());
}

}  // namespace steelyard::cli
