#include "steelyard/recipes/hosted/plan_json.h"

#include <nlohmann/json.hpp>

namespace steelyard {

std::string plan_json(const qat::Plan& plan) {
  auto rows = nlohmann::ordered_json::array();
  for (const qat::PlanRow& row : plan.rows) {
    rows.push_back({{"module", row.module},
                    {"tensor", row.tensor},
                    {"quantized", row.quantized},
                    {"observer", row.observer},
                    {"note", row.note}});
  }
  return nlohmann::ordered_json{{"rows", rows}, {"notes", plan.notes}}.dump();
}

}  // namespace steelyard
