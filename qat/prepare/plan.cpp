#include "steelyard/qat/prepare/plan.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace steelyard::qat {
namespace {

constexpr std::size_t kFewestAlike = 4;  // blocks that become one

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_separator(char c) { return c == '.' || c == '_'; }

// Rows one after another whose modules lie in the same block, "layers.3.".
struct RowBlock {
  std::string before{};  // "layers."; empty where a module lies in none
  std::int64_t number = 0;
  std::string after{};  // "."
  std::vector<PlanRow> rows{};

  bool has(const RowBlock& other) const {
    return before == other.before && number == other.number && after == other.after;
  }
  // The rows with another word in the place of the number.
  std::vector<PlanRow> numbered(const std::string& word) const {
    const std::string own = before + std::to_string(number) + after;
    std::vector<PlanRow> renamed = rows;
    for (PlanRow& row : renamed) {
      for (std::string* text : {&row.module, &row.quantized, &row.note}) {
        for (std::size_t at = 0; (at = text->find(own, at)) != std::string::npos;) {
          text->replace(at, own.size(), before + word + after);
          at += before.size() + word.size() + after.size();
        }
      }
    }
    return renamed;
  }
};

RowBlock block_of(const PlanRow& row) {
  constexpr std::size_t kMostDigits = 6;
  const std::string& name = row.module;
  for (std::size_t i = 1; i < name.size(); ++i) {
    if (!is_digit(name[i]) || !is_separator(name[i - 1])) continue;
    std::size_t end = i;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end == name.size() || !is_separator(name[end]) || end - i > kMostDigits) continue;
    return {name.substr(0, i), std::stoll(name.substr(i, end - i)), name.substr(end, 1), {row}};
  }
  return {.rows = {row}};
}

std::vector<RowBlock> blocks_of(const Plan& plan) {
  std::vector<RowBlock> blocks;
  for (const PlanRow& row : plan.rows) {
    RowBlock own = block_of(row);
    if (!own.before.empty() && !blocks.empty() && blocks.back().has(own)) {
      blocks.back().rows.push_back(row);
    } else {
      blocks.push_back(std::move(own));
    }
  }
  return blocks;
}

bool follows(const RowBlock& block, const RowBlock& last) {
  return !block.before.empty() && block.before == last.before && block.after == last.after &&
         block.number == last.number + 1 && block.numbered("*") == last.numbered("*");
}

}  // namespace

Plan grouped(const Plan& plan) {
  Plan short_plan{{}, plan.notes};
  const std::vector<RowBlock> blocks = blocks_of(plan);
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t end = i + 1;
    while (end < blocks.size() && follows(blocks[end], blocks[end - 1])) ++end;
    const bool alike = end - i >= kFewestAlike;
    const std::string range =
        std::to_string(blocks[i].number) + ".." + std::to_string(blocks[end - 1].number);
    const std::vector<PlanRow> rows = alike ? blocks[i].numbered(range) : blocks[i].rows;
    short_plan.rows.insert(short_plan.rows.end(), rows.begin(), rows.end());
    i = alike ? end : i + 1;
  }
  return short_plan;
}

std::string to_string(const Plan& plan) {
  std::vector<std::array<std::string, 5>> cells{
      {"module", "tensor", "quantized as", "observer", "note"}};
  for (const PlanRow& row : plan.rows) {
    cells.push_back({row.module, row.tensor, row.quantized, row.observer, row.note});
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& row : cells) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

std::ostream& operator<<(std::ostream& stream, const Plan& plan) {
  return stream << to_string(plan);
}

}  // namespace steelyard::qat
