#include "cli/score.h"

#include <sys/wait.h>  // IWYU pragma: keep

#include <charconv>
#include <cmath>
#include <cstdio>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::cli {
namespace {

constexpr std::string_view kPlace = "{onnx}";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMostText = 4096;

// As one word of a shell command.
std::string quoted_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// The end of what the command prints, and its status.
std::pair<std::string, int> output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return {"", -1};
  std::string output;
  char text[512];
  while (std::fgets(text, sizeof text, pipe) != nullptr) {
    output += text;
    if (output.size() > kMostText) output.erase(0, output.size() - kMostText);
  }
  return {output, pclose(pipe)};
}

}  // namespace

double score_of(const std::string& command, const std::filesystem::path& file) {
  std::string line = command;
  const std::string word = quoted_word(file.string());
  for (std::size_t at = 0; (at = line.find(kPlace, at)) != std::string::npos; at += word.size()) {
    line.replace(at, kPlace.size(), word);
  }
  const std::string what = "--score: " + printable(line, 300) + ": ";
  auto [output, status] = output_of(line);
  if (status != 0) {
    throw InputError(what + (WIFEXITED(status) ? "ended with " + std::to_string(WEXITSTATUS(status))
                                               : "did not end by itself"));
  }
  output.erase(output.find_last_not_of(kSpace) + 1);
  output.erase(0, output.find_last_of(kSpace) + 1);
  double number = 0;
  const auto end = output.data() + output.size();
  const auto [rest, error] = std::from_chars(output.data(), end, number);
  if (error != std::errc() || rest != end || !std::isfinite(number)) {
    throw InputError(what + "expected a number as its last word, got '" + printable(output, 100) +
                     "'");
  }
  return number;
}

}  // namespace steelyard::cli
