// The plan: what prepare() decided for every module and tensor. It is printed before training
// starts.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/observers/qscheme.h"

namespace steelyard::qat {

struct PlanRow {
  std::string module;     // path: "layer1.0.conv1"
  std::string tensor;     // "weight", "bias", "output", "input" or "-"
  std::string quantized;  // "int8 symmetric, per channel", "as conv1.output", "float", "-"
  std::string observer;
  std::string note;
  std::optional<observers::QScheme> scheme = {};  // of a tensor that has a quantizer here
  bool operator==(const PlanRow& other) const = default;
};

struct Plan {
  std::vector<PlanRow> rows;
  std::vector<std::string> notes{};  // on the whole, a line each
};

// An aligned table, a line a row, with a header line; then the notes.
std::string to_string(const Plan& plan);  // The plan with blocks in one that differ in their number
                                          // alone, as those of language models do:
// rows of "layers.0..29.fc" for those of "layers.0.fc" to "layers.29.fc".
Plan grouped(const Plan& plan);

std::ostream& operator<<(std::ostream& stream, const Plan& plan);

}  // namespace steelyard::qat
