#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cli/verbs.h"
#include "framework/error.h"
#include "framework/files.h"

namespace steelyard::cli {
namespace {

ExitCode report(const char* kind, const std::exception& error, ExitCode code) {
  std::fflush(stdout);
  constexpr std::size_t kMaxMessageBytes = 65536;
  fmt::print(stderr, "{}: {}\n", kind, printable(error.what(), kMaxMessageBytes));
  return code;
}

// A closed descriptor would be given to the next file that is opened, and what is printed would end
// up in it.
void open_standard_descriptors() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) == -1) open("/dev/null", O_RDWR);  // takes the lowest free one
  }
}

// What was printed is the result of most verbs: a full disk must not look like success.
ExitCode finish(ExitCode code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("standard output: cannot write");
  }
  return code;
}

int run(int argc, char** argv) {
  CLI::App app("Steelyard: quantization-aware training from YAML recipes.");
  app.require_subcommand(1);
  app.set_version_flag("--version", STEELYARD_VERSION);
  std::vector<std::pair<CLI::App*, Run>> verbs;
  for (Run (*add)(CLI::App&) :
       {add_train, add_calibrate, add_eval, add_export, add_predict, add_verify, add_report,
        add_sensitivity, add_validate, add_inspect, add_recipes, add_schema}) {
    Run verb = add(app);
    const auto known = app.get_subcommands([](CLI::App*) { return true; });
    verbs.emplace_back(known.back(), std::move(verb));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kDone : kUsage;
  }
  try {
    for (const auto& [subcommand, verb] : verbs) {
      if (!subcommand->parsed()) continue;
      use_default_threads();
      return finish(verb());
    }
  } catch (const InputError& error) {
    return report("error", error, kUsage);
  } catch (const DeviceError& error) {
    return report("error", error, kDeviceNotAvailable);
  } catch (const std::exception& error) {
    return report("failed", error, kFailed);
  }
  return kUsage;
}

}  // namespace
}  // namespace steelyard::cli

int main(int argc, char** argv) {
  steelyard::cli::choose_wait_policy(argv);
  steelyard::cli::open_standard_descriptors();
  return steelyard::cli::run(argc, argv);
}
