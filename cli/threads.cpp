#include "cli/verbs.h"
#include "recipes/scalar.h"

namespace steelyard::cli {

void add_threads(CLI::App& verb, int& threads) {
  // CLI11 reads "010" as octal.
  const auto decimal = [](const std::string& text) -> std::string {
    constexpr std::int64_t kMost = 4096;
    const auto value = parse_integer(text);
    if (value && *value >= 1 && *value <= kMost) return "";
    return "expected a whole number from 1 to 4096, got " + quote_for_message(text);
  };
  verb.add_option("--threads", threads, "CPU threads (default: all cores)")
      ->check(CLI::Validator(decimal, "1 to 4096"));
}

}  // namespace steelyard::cli
