#include "cli/usage.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard::cli {
namespace {

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool takes_path(const std::string& option) {
  constexpr std::string_view kOptions[] = {"--run-dir", "--out",    "--model", "--checkpoint",
                                           "--recipe",  "--python", "--plugin"};
  if (!option.starts_with("-")) return option != "prompt";  // of `generate`, the only other one
  return std::find(std::begin(kOptions), std::end(kOptions), option) != std::end(kOptions);
}

std::string unknown_option(const CLI::App& of, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  return "unknown option " + quote_for_message(name) + did_you_mean(name, option_names(of));
}

// The message about words that the parser did not know. An unknown option comes first, because the
// word after it may be its value.
std::string unknown_word(const CLI::App& verb, const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto option = std::find_if(words.begin(), end, [](const std::string& word) {
    return word.starts_with("-") && word != "-";
  });
  if (option != end) return unknown_option(verb, *option);
  const bool behind = words.front() == "--" && words.size() > 1;
  return "unexpected argument " + quote_for_message(words[behind ? 1 : 0]) +
         (behind ? " behind --" : "");
}

// Which argument is missing, and what it is.
std::string missing_argument(const CLI::App& verb, const CLI::RequiredError& error) {
  const auto missing = verb.get_options(
      [](const CLI::Option* option) { return option->get_required() && option->count() == 0; });
  if (missing.empty()) return error.what();
  const CLI::Option& first = *missing.front();
  return "the argument " + first.get_name() + " is missing: " + first.get_description();
}

std::string message_without_verb(const CLI::App& app, const std::vector<std::string>& words) {
  const std::vector<std::string> verbs = verb_names(app);
  if (words.empty()) return "a command is missing, one of: " + join(verbs);
  if (words.front().starts_with("-")) return unknown_option(app, words.front());
  return "unknown command " + quote_for_message(words.front()) +
         did_you_mean(words.front(), verbs) + "; commands: " + join(verbs);
}

}  // namespace

void refuse_empty_paths(CLI::App& app) {
  const auto check = [](const std::string& text) {
    return std::string(text.empty() ? "expected a path, got ''" : "");
  };
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : verb->get_options()) {
      const std::string name = option->get_name();
      if (takes_path(name)) option->check(CLI::Validator(check, ""));
    }
  }
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> chosen =
      app.get_subcommands([](const CLI::App* verb) { return verb->parsed(); });
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  if (chosen.empty()) return message_without_verb(app, words) + " (see steelyard --help)";
  const CLI::App& verb = *chosen.front();
  const bool unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !words.empty();
  const auto* missing = dynamic_cast<const CLI::RequiredError*>(&error);
  return (unknown              ? unknown_word(verb, words)
          : missing != nullptr ? missing_argument(verb, *missing)
                               : std::string(error.what())) +
         " (see steelyard " + verb.get_name() + " --help)";
}

std::string error_line(const char* kind, const std::string& message) {
  constexpr std::size_t kMaxMessageBytes = 65536;
  return fmt::format("{}: {}\n", kind, printable(message, kMaxMessageBytes));
}

ExitCode report(const char* kind, const std::string& message, ExitCode code) {
  std::fflush(stdout);
  const std::string line = error_line(kind, message);
  std::fwrite(line.data(), 1, line.size(), stderr);  // fmt would throw where nobody can be told
  return code;
}

}  // namespace steelyard::cli
