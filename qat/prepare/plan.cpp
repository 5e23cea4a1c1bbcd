#include "steelyard/qat/prepare/plan.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace steelyard::qat {

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
