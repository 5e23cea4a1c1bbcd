// The commands of the program (`steelyard train`, ...), called verbs in the code, each in the file
// of its name (schema: validate.cpp). A verb adds its options to the parser and returns the
// function that runs if the command was chosen; the function's result is the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "steelyard/framework/comm/watchdog.h"
#include "steelyard/recipes/models/onnx_choices.h"
#include "steelyard/recipes/schema/registries.h"

namespace steelyard::cli {

// The contract with scripts.
enum ExitCode {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,     // wrong arguments, recipe, file or dataset
  kMismatch = 3,  // verify: the deployed model computes something else
  kDeviceNotAvailable = 4,
  kRankLost = comm::kRankLostExitCode,
  kInterrupted = 130
};

// The names that recipes and runs may use: the library's and those of plugins.
using Verb = std::function<ExitCode(const Registries&)>;

// Lets idle threads sleep soon, unless the environment says how they wait: restarts the program
// with a GOMP_SPINCOUNT, which libgomp reads before main(). If other processes are busy, spinning
// threads take the processor from those that they wait for.
void shorten_spinning(char** argv);

// Sets the number of threads to OMP_NUM_THREADS, else to the number of processors that the process
// may use. Throws InputError unless OMP_NUM_THREADS is from 1 to 4096.
void use_default_threads();

// Adds --threads, a decimal number from 1 to 4096, which is set before the verb runs.
void add_threads(CLI::App& verb);
void set_threads_of(const CLI::App& verb);

// Adds --output, --batch-axis and --freeze, each of which may be given several times.
void add_choices(CLI::App& verb, OnnxChoices& choices);

Verb add_train(CLI::App& app);
Verb add_quantize(CLI::App& app);
Verb add_calibrate(CLI::App& app);
Verb add_import(CLI::App& app);
Verb add_eval(CLI::App& app);
Verb add_export(CLI::App& app);
Verb add_predict(CLI::App& app);
Verb add_verify(CLI::App& app);
Verb add_report(CLI::App& app);
Verb add_sensitivity(CLI::App& app);
Verb add_tokenize(CLI::App& app);
Verb add_generate(CLI::App& app);
Verb add_validate(CLI::App& app);
Verb add_data(CLI::App& app);
Verb add_profile(CLI::App& app);
Verb add_benchmark(CLI::App& app);
Verb add_inspect(CLI::App& app);
Verb add_recipes(CLI::App& app);
Verb add_schema(CLI::App& app);

}  // namespace steelyard::cli
