// The verbs of the command line, one file each. A verb adds its options to the parser and returns
// what runs when it was chosen; the run's result is the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "steelyard/framework/comm/watchdog.h"

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

using Verb = std::function<ExitCode()>;

// Lets idle threads sleep soon where the environment says nothing of how they wait: starts the
// program again with a GOMP_SPINCOUNT, which libgomp reads before main(). Beside other busy
// processes, spinning threads take the processor from those that they wait for.
void shorten_spinning(char** argv);

// As many threads as OMP_NUM_THREADS says, else as the process may use processors. Throws
// InputError for a count that is none from 1 to 4096.
void use_default_threads();

// Adds --threads, a decimal number from 1 to 4096.
void add_threads(CLI::App& verb, int& threads);

Verb add_train(CLI::App& app);
Verb add_calibrate(CLI::App& app);
Verb add_import(CLI::App& app);
Verb add_eval(CLI::App& app);
Verb add_export(CLI::App& app);
Verb add_predict(CLI::App& app);
Verb add_verify(CLI::App& app);
Verb add_report(CLI::App& app);
Verb add_sensitivity(CLI::App& app);
Verb add_validate(CLI::App& app);
Verb add_data(CLI::App& app);
Verb add_profile(CLI::App& app);
Verb add_inspect(CLI::App& app);
Verb add_recipes(CLI::App& app);
Verb add_schema(CLI::App& app);

}  // namespace steelyard::cli
