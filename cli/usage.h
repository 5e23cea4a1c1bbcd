// What went wrong, in words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/verbs.h"

namespace steelyard::cli {

// An empty path is what a script gives whose variable is not set, not the current folder: makes the
// options and arguments of every verb that take paths refuse it.
void refuse_empty_paths(CLI::App& app);

// The message for words that the parser refused: it names the verb or option that comes nearest.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error);

// "kind: message", on one line that ends.
std::string error_line(const char* kind, const std::string& message);
// Prints it to standard error after what was printed; gives the code.
ExitCode report(const char* kind, const std::string& message, ExitCode code);

}  // namespace steelyard::cli
