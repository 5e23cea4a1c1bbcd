#include "steelyard/recipes/hosted/plan_json.h"

#include <nlohmann/json.hpp>

#include "steelyard/qat/quantizers/words.h"

namespace steelyard {

std::string plan_json(const qat::Plan& plan) {
  auto rows = nlohmann::ordered_json::array();
  for (const qat::PlanRow& row : plan.rows) {
    nlohmann::ordered_json entry{{"module", row.module},
                                 {"tensor", row.tensor},
                                 {"quantized", row.quantized},
                                 {"observer", row.observer},
                                 {"note", row.note}};
    if (row.scheme) {
      entry["scheme"] = {{"num_bits", row.scheme->bits},
                         {"symmetric", row.scheme->symmetric},
                         {"strategy", word_of(row.scheme->granularity)},
                         {"dynamic", row.scheme->dynamic}};
    }
    rows.push_back(std::move(entry));
  }
  return nlohmann::ordered_json{{"rows", rows}, {"notes", plan.notes}}.dump();
}

}  // namespace steelyard
