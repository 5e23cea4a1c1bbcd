// What a recipe says about a table and, behind it, the table: as a training set, as a test set of
// its own names, and as features for predictions.
#include <cmath>

#include "steelyard/framework/data/tables/table_dataset.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

// Words that a space follows or ends.
std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::vector<float> features_of(const SampleSource& samples) {
  const auto width = static_cast<std::size_t>(sample_values(samples));
  std::vector<float> all(width * static_cast<std::size_t>(samples.size()));
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    samples.read(i, nullptr, all.data() + static_cast<std::size_t>(i) * width);
  }
  for (const float x : all) fuzz::require(std::isfinite(x), "a feature is not finite");
  return all;
}

}  // namespace
}  // namespace steelyard

// The delimiter and a letter for the targets (classes, regression, marks, texts); then, with NUL
// between them, the words of target, categories, ignore and missing, and the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  const auto parts = fuzz::split(fuzz::view(data, size), 6);
  if (parts[0].size() < 2) return 0;
  DatasetRequest request{.name = "table", .path = input.holding(parts[5])};
  request.table = TableOptions{.target = words(parts[1]),
                               .categories = words(parts[2]),
                               .ignore = words(parts[3]),
                               .missing = words(parts[4])};
  const char delimiter = parts[0][0];
  request.table->delimiter = delimiter == ';'    ? Delimiter::kSemicolon
                             : delimiter == '\t' ? Delimiter::kTab
                                                 : Delimiter::kComma;
  const char kind = parts[0][1];
  request.table->regression = kind == 'r';
  if (kind == 'm') request.targets.kind = TargetKind::kMarks;
  if (kind == 't') request.targets.kind = TargetKind::kText;
  fuzz::accepted([&] {
    const Dataset train = load_table(request).train;
    validate_dataset(train, "accepted");
    const std::vector<float> features = features_of(*train.source);
    fuzz::require(feature_count(train.names.columns) == sample_values(*train.source),
                  "the columns give another number of features");
    // What was learned from the table reads it as it did.
    request.names = train.names;
    const Dataset again = load_table(request).train;
    fuzz::require(
        features_of(*again.source) == features && fuzz::equal(again.targets, train.targets),
        "with its own names it is another table");
    fuzz::require(
        features_of(*table_features(request.path, *request.table, train.names)) == features,
        "its features alone are others");
  });
  return 0;
}
