// Constants that say which sample it is, as the masks of transformers' encoders are looked up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::HasSubstr;
using testing::message_of;

constexpr std::int64_t kInSample = 3;

struct Lookup {
  std::int64_t rows = kInSample;  // from one sample to the next
  std::vector<std::int64_t> places{2, 0, 1};
};

// A model of x [N, 3] and the numbers 0, 1, ... of its samples [N, 1].
struct CountedSamples {
  ModelMaker m = ModelMaker({{std::nullopt, "batch"}, {kInSample}});
  std::string numbers() {
    const std::string batch =
        m.node("Gather", {m.node("Shape", {"x"}), m.number_of(0)}, {{"axis", std::int64_t{0}}});
    const std::string range = m.node("Range", {m.number_of(0), batch, m.number_of(1)});
    return m.node("Unsqueeze", {range, m.integers({1})});
  }
  // The elements of x one after another, of all samples, at places [N, 1, 3] as `lookup` has them.
  std::string looked_up(const Lookup& lookup) {
    const std::string first = m.node(
        "Mul", {m.node("Unsqueeze", {numbers(), m.integers({2})}), m.integers({lookup.rows})});
    const std::string at = m.node("Add", {m.integers(lookup.places), first});
    const std::string all = m.node("Flatten", {"x"}, {{"axis", std::int64_t{2}}});
    const std::string found = m.node("Gather", {all, at}, {{"axis", std::int64_t{0}}});
    const std::string flat = m.node("Reshape", {found, m.integers({-1})});
    return m.node("Reshape", {flat, m.node("Shape", {at})});
  }
};

std::string refusal_of(CountedSamples& samples, const std::string& output) {
  return message_of<InputError>([&] { translate(samples.m.ending_in(output), {kInSample}); });
}

TEST(SampleNumbers, EachSampleReadsItsOwnRows) {
  CountedSamples samples;
  const Imported imported = translate(samples.m.ending_in(samples.looked_up({})), {kInSample});
  const Tensor y = output_of(imported, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, kInSample}));
  EXPECT_TRUE(all_close(y, Tensor::from<float>({3, 1, 2, 6, 4, 5}, {2, 1, kInSample}), 0, 0));
}

// As torch broadcasts indices beside each other.
TEST(SampleNumbers, TheyMayBeExpanded) {
  CountedSamples samples, added;
  const auto expanded = [](CountedSamples& s) {
    return s.m.node("Expand", {s.numbers(), s.m.node("Shape", {"x"})});
  };
  const std::string first =
      samples.m.node("Mul", {expanded(samples), samples.m.integers({kInSample})});
  const std::string at = samples.m.node("Add", {samples.m.integers({2, 0, 1}), first});
  const std::string all = samples.m.node("Reshape", {"x", samples.m.integers({-1})});
  const Imported imported =
      translate(samples.m.ending_in(samples.m.node("Gather", {all, at})), {kInSample});
  const Tensor y = output_of(imported, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, kInSample}));
  EXPECT_TRUE(all_close(y, Tensor::from<float>({3, 1, 2, 6, 4, 5}, {2, kInSample}), 0, 0));

  const std::string real = added.m.node("Cast", {expanded(added)}, {{"to", std::int64_t{1}}});
  EXPECT_THAT(refusal_of(added, added.m.node("Add", {"x", real})),
              HasSubstr("(Add): of the numbers of the samples"));
}

TEST(SampleNumbers, RowsOfOtherSamplesAreRefused) {
  CountedSamples neighbour, overlapping;
  EXPECT_THAT(refusal_of(neighbour, neighbour.looked_up({.places = {0, 1, 3}})),
              HasSubstr("(Gather): an index is none of the sample's own rows"));
  EXPECT_THAT(refusal_of(overlapping, overlapping.looked_up({.rows = 2, .places = {0, 1, 1}})),
              HasSubstr("(Gather): of the numbers of the samples"));
}

TEST(SampleNumbers, NothingElseReadsThem) {
  CountedSamples added, scaled;
  const auto real = [](CountedSamples& s) {
    return s.m.node("Cast", {s.numbers()}, {{"to", std::int64_t{1}}});
  };
  EXPECT_THAT(refusal_of(added, added.m.node("Add", {"x", real(added)})),
              HasSubstr("(Add): of the numbers of the samples"));
  EXPECT_THAT(refusal_of(scaled, scaled.m.node("Mul", {scaled.numbers(), scaled.numbers()})),
              HasSubstr("(Mul): of the numbers of the samples"));
}

}  // namespace
}  // namespace steelyard::imports
