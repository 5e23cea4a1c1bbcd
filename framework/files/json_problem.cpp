#include "steelyard/framework/files/json_problem.h"

#include <string_view>

#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

// Removes what comes before `mark`, and it; gives that.
std::string_view take_until(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return taken;
}

}  // namespace

std::string json_problem(const std::string& file, const std::exception& error) {
  std::string_view text = error.what();
  if (text.starts_with("[json.exception.")) take_until(text, "] ");
  constexpr std::string_view kParsing = "parse error at line ";
  if (!text.starts_with(kParsing)) return file + ": " + printable(text);
  text.remove_prefix(kParsing.size());
  const std::string_view line = take_until(text, ", column ");
  const std::string_view column = take_until(text, ": ");
  take_until(text, " - ");  // "syntax error while parsing value"
  return file + ":" + std::string(line) + ":" + std::string(column) +
         ": is no JSON: " + printable(text);
}

}  // namespace steelyard
