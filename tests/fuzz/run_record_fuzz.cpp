// What a checkpoint records of its run: the metadata "data" (JSON), NUL, "recipe" (YAML). What is
// accepted fits together, and written again it reads the same.
#include "steelyard/recipes/runs/records/run_record.h"

#include <cmath>

#include "steelyard/recipes/models/models.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

void check(const RunRecord& record) {
  const auto& [mean, stddev] = record.normalization;
  fuzz::require(mean.size() == stddev.size(), "means without deviations");
  for (const float v : mean) fuzz::require(std::isfinite(v), "a mean that is not finite");
  for (const float v : stddev) {
    fuzz::require(std::isfinite(v) && v > 0, "a deviation that divides nothing");
  }
  fuzz::require_one_line(to_string(record.input));
  fuzz::require(shape_size(record.input.batch(1)) > 0, "an empty sample");
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const auto parts = fuzz::split(fuzz::view(data, size), 2);
  const TensorFileMetadata metadata{{"data", std::string(parts[0])},
                                    {"recipe", std::string(parts[1])}};
  std::optional<Normalization> normalization;
  const bool data_accepted =
      fuzz::accepted([&] { normalization = normalization_in(metadata, "checkpoint"); });
  RunRecord record;
  if (!fuzz::accepted(
          [&] { record = record_in(metadata, "checkpoint", builtin_registries()).value(); })) {
    return 0;
  }
  fuzz::require(data_accepted && normalization == record.normalization,
                "normalization_in() reads otherwise");
  check(record);
  TensorFileMetadata again;
  add_record(record, again);
  const RunRecord reread = record_in(again, "again", builtin_registries()).value();
  fuzz::require(reread.input == record.input && reread.normalization == record.normalization &&
                    reread.data_digest == record.data_digest && reread.recipe == record.recipe,
                "a record that was written reads otherwise");
  return 0;
}
