#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/as_ranks.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/unsupported.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/plugin.h"

namespace steelyard::cli {
namespace {

// Without this, the next file that is opened would get a closed descriptor, and printed text would
// end up in it. Standard output opened for reading only fails as a closed one does.
void open_standard_descriptors() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const int access = descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (fcntl(descriptor, F_GETFD) == -1) open("/dev/null", access);  // takes the lowest free one
  }
}

// The printed text is the result of most commands, so a full disk must not look like success.
ExitCode finish(ExitCode code) {
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (written) return code;
  const std::string reason = errno == 0 ? "" : ": " + std::generic_category().message(errno);
  return report("failed", "standard output: cannot write" + reason, code == kDone ? kFailed : code);
}

// Takes the number of threads and the kernels from the environment; what is wrong with it, if
// anything.
std::string problem_with_environment() {
  try {
    use_default_threads();
    kernels::backend_text();
    return "";
  } catch (const InputError& error) {
    return error.what();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

// What several processes may do together (docs/scale.md).
bool takes_ranks(const std::string& verb) {
  constexpr std::string_view kVerbs[] = {"train", "eval", "sensitivity"};
  return std::find(std::begin(kVerbs), std::end(kVerbs), verb) != std::end(kVerbs);
}

// A verb with the plugins that its command line names.
struct AddedVerb {
  CLI::App* app;
  Verb run;
  std::shared_ptr<std::vector<std::string>> plugins;
};
using Verbs = std::vector<AddedVerb>;

// To all verbs but the one that reads no recipe and no run.
void add_plugins(CLI::App& verb, std::vector<std::string>& plugins) {
  if (verb.get_name() == "recipes") return;
  verb.add_option("--plugin", plugins,
                  "A shared object with datasets, losses, metrics, layers and observers that the "
                  "recipe or run names; may be repeated (docs/own_parts.md)")
      ->allow_extra_args(false);
}

Verbs add_verbs(CLI::App& app) {
  Verbs verbs;
  for (Verb (*add)(CLI::App&) :
       {add_train, add_quantize, add_import, add_calibrate, add_eval, add_export, add_predict,
        add_verify, add_report, add_sensitivity, add_tokenize, add_generate, add_validate, add_data,
        add_profile, add_benchmark, add_inspect, add_recipes, add_schema}) {
    Verb verb = add(app);
    const auto known = app.get_subcommands([](CLI::App*) { return true; });
    verbs.push_back({known.back(), std::move(verb), std::make_shared<std::vector<std::string>>()});
    add_plugins(*known.back(), *verbs.back().plugins);
  }
  return verbs;
}

int run_parsed(const Verbs& verbs) {
  for (const auto& [subcommand, verb, plugins] : verbs) {
    if (!subcommand->parsed()) continue;
    const std::string name = subcommand->get_name();
    if (!takes_ranks(name) && is_one_of_several()) {
      return refuse(name + " is for one process: start it without mpirun or srun");
    }
    set_threads_of(*subcommand);
    Registries registries;
    try {
      if (name != "recipes") load_plugins_of_environment(registries);
      for (const std::string& plugin : *plugins) load_plugin(plugin, registries);
    } catch (const InputError& error) {
      return refuse(error.what());
    }
    return finish(verb(registries));
  }
  return kUsage;
}

// What f() returns, or the exit code of what it throws, which is reported.
template <typename F>
int with_errors_reported(const F& f) {
  try {
    return f();
  } catch (const imports::UnsupportedGraph& error) {
    const auto& nodes = error.nodes();
    for (const imports::UnsupportedNode& node : nodes) report("node", to_string(node), kUsage);
    return report("error",
                  fmt::format("{}: {} of its nodes cannot be imported (docs/import.md)",
                              error.source(), nodes.size()),
                  kUsage);
  } catch (const InputError& error) {
    return report("error", error.what(), kUsage);
  } catch (const DeviceError& error) {
    return report("error", error.what(), kDeviceNotAvailable);
  } catch (const std::bad_alloc&) {
    return report("failed", "out of memory", kFailed);
  } catch (const std::system_error& error) {
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    return report("failed",
                  fmt::format("{}{}",
                              thread ? "cannot start a thread (ulimit -v limits addresses, ulimit "
                                       "-u processes): "
                                     : "",
                              error.what()),
                  kFailed);
  } catch (const std::exception& error) {
    return report("failed", error.what(), kFailed);
  } catch (...) {  // of a program's part: those of a plugin that have a name are named
    return report("failed", "threw something that is no std::exception", kFailed);
  }
}

int run(int argc, char** argv) {
  CLI::App app("Steelyard: quantization-aware training from YAML recipes.");
  app.require_subcommand(1);
  app.set_version_flag("--version", STEELYARD_VERSION);
  const Verbs verbs = add_verbs(app);
  refuse_empty_paths(app);
  std::string misunderstood;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);  // prints the help or the version
      return finish(kDone);
    }
    misunderstood = usage_message(app, error);
  }
  return with_errors_reported([&] {
    if (misunderstood.empty()) misunderstood = problem_with_environment();
    return misunderstood.empty() ? run_parsed(verbs) : refuse(misunderstood);
  });
}

}  // namespace
}  // namespace steelyard::cli

int main(int argc, char** argv) {
  steelyard::cli::shorten_spinning(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
  steelyard::cli::open_standard_descriptors();
  return steelyard::cli::run(argc, argv);
}
