// A run's metrics.jsonl, NUL, its summary.json, NUL, its profile.json: whatever they hold, the run
// has a page.
#include "steelyard/recipes/reports/run_report.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr const char* kRecipe = R"(version: 1
name: run
data: {dataset: safetensors, path: nowhere, batch_size: 10}
model: {classes: 4, layers: [{type: Flatten}, {type: Linear, out_features: 4}]}
train: {epochs: 6, optimizer: {type: sgd, lr: 0.02}}
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static const Registries kRegistries;
  const auto parts = fuzz::split(fuzz::view(data, size), 3);
  const std::filesystem::path& run = fuzz::scratch_folder();
  fuzz::write_file(run / "recipe.yaml", kRecipe);
  fuzz::write_file(run / "metrics.jsonl", parts[0]);
  fuzz::write_file(run / "summary.json", parts[1]);
  fuzz::write_file(run / "profile.json", parts[2]);
  const std::string page = report_page(make_report(run, kRegistries, {}));
  fuzz::require(page.size() < 200'000 + 100 * size, "a page of " + std::to_string(page.size()));
  fuzz::require(page.find("<script") == std::string::npos, "the page has a script");
  return 0;
}
