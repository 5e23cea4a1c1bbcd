// Samples of photographs and of rows, from C++ and C: those that evaluation in training makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "steelyard/export/graph_file.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/data/tables/table_dataset.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/runtime/preprocessing.h"
#include "steelyard/runtime/steelyard_runtime.h"
#include "tests/runtime/runtime_models.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::photo;
using testing::shipped_model;
using testing::TemporaryFolder;

constexpr std::size_t kSampleBytes = 9 * 8 * 3;

// A model of rows with the columns.
deploy::Graph model_of_rows(const std::vector<TableColumn>& columns) {
  Rng rng(3);
  const std::int64_t features = feature_count(columns);
  qat::QuantizeConfig config;
  config.groups = {{{"Linear"}, qat::default_w8a8()}};
  const qat::PreparedModel prepared =
      qat::prepare(std::make_shared<Linear>(LinearOptions{features, 2}, rng), config);
  const Tensor rows = testing::random_tensor({4, features}, 1, DType::kF32);
  prepared.model->forward(Variable(rows), {.training = true, .rng = &rng});
  deploy::Graph graph = deploy::trace(*prepared.model, rows, "rows").graph;
  graph.preprocessing.table = {{.missing = {"", "NA"}}, columns};
  return graph;
}

const std::vector<TableColumn> kColumns = {
    {"rooms"}, {"area", {}, 71.5F}, {"town", {"", "Aachen", "Zug"}}, {"heating", {"gas", "oil"}}};

// A model loaded through the C face.
struct CModel {
  explicit CModel(const deploy::Graph& graph) {
    deploy::save_graph(folder / "model.safetensors", graph);
    EXPECT_EQ(steelyard_model_load((folder / "model.safetensors").c_str(), &model, message,
                                   sizeof message),
              0)
        << message;
  }
  CModel(const CModel&) = delete;
  CModel& operator=(const CModel&) = delete;
  ~CModel() { steelyard_model_destroy(model); }

  int image(const std::vector<std::uint8_t>& pixels, std::int64_t height, std::int64_t width,
            std::int32_t channels, std::size_t row_bytes) {
    sample.assign(kSampleBytes, 0);
    return steelyard_model_image(model, pixels.data(), height, width, channels, row_bytes,
                                 sample.data(), sample.size(), message, sizeof message);
  }

  TemporaryFolder folder;
  steelyard_model* model = nullptr;
  char message[256] = "";
  std::vector<std::uint8_t> sample;
};

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  const auto values = tensor.span<std::uint8_t>();
  return {values.begin(), values.end()};
}

TEST(Preprocessing, ImagesAreWhatEvaluationSees) {
  const deploy::Graph graph = shipped_model();
  const std::vector<Image> images{photo(), photo(40, 9), photo(9, 8)};
  const Tensor samples = deploy::image_samples(graph, images);
  ASSERT_EQ(samples.shape(), (Shape{3, 9, 8, 3}));
  std::vector<std::uint8_t> expected;
  for (const Image& image : images) {
    const Image seen = transformed(image, *graph.preprocessing.transforms);
    expected.insert(expected.end(), seen.pixels.begin(), seen.pixels.end());
  }
  EXPECT_EQ(bytes_of(samples), expected);
}

TEST(Preprocessing, ImagesOfOtherSizesAreErrors) {
  deploy::Graph graph = shipped_model();
  const auto message = [&](const Image& image) {
    return message_of<InputError>([&] { deploy::image_samples(graph, {&image, 1}); });
  };
  graph.preprocessing.transforms = {.resize_shorter = 9};
  EXPECT_EQ(message(photo()),
            "expected an image of 9 x 8 pixels as the model takes, got 9 x 12 "
            "after its transforms");
  graph.preprocessing.transforms.reset();
  EXPECT_EQ(message(photo()),
            "expected an image of 9 x 8 pixels as the model takes, got 21 x 30; "
            "it has no transforms");
  const Image fitting = photo(9, 8);
  EXPECT_THAT(message_of<InputError>([&] {
                deploy::image_samples(graph, std::vector<Image>{fitting, photo()});
              }),
              HasSubstr("image 1: expected an image of 9 x 8"));
  EXPECT_EQ(bytes_of(deploy::image_samples(graph, {&fitting, 1})), fitting.pixels);
  EXPECT_THAT(message({0, 8, 3, {}}), HasSubstr("expected an image of 1 to"));
  const deploy::Graph table = model_of_rows(kColumns);
  const Image image = photo();
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              deploy::image_samples(table, {&image, 1});
            }),
            "[runtime] the model takes f32 [7], not images");
}

TEST(Preprocessing, RowsAreWhatTheTableGives) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.csv") << "rooms,area,town,heating\n"
                                        "3,80.25,Zug, oil \n"
                                        " 4 ,NA,,gas\n"
                                        "-1e3,0.1,NA,gas\n";
  const std::vector<std::vector<std::string_view>> rows = {
      {"3", "80.25", "Zug", " oil "}, {" 4 ", "NA", "", "gas"}, {"-1e3", "0.1", "NA", "gas"}};
  const deploy::Graph graph = model_of_rows(kColumns);
  const auto source = table_features(folder / "rows.csv", graph.preprocessing.table->options,
                                     {.columns = kColumns});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> expected(7);
    source->read(static_cast<std::int64_t>(i), nullptr, expected.data());
    const Tensor sample = deploy::row_sample(graph, rows[i]);
    const auto values = sample.span<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), expected) << i;
  }
}

TEST(Preprocessing, FieldsThatAreWrongAreNamed) {
  const deploy::Graph graph = model_of_rows(kColumns);
  const auto message = [&](const std::vector<std::string_view>& fields) {
    return message_of<InputError>([&] { deploy::row_sample(graph, fields); });
  };
  EXPECT_THAT(message({"many", "1", "Zug", "gas"}),
              HasSubstr("column 'rooms': expected a finite number, got 'many'"));
  EXPECT_THAT(message({"", "1", "Zug", "gas"}), HasSubstr("column 'rooms'"));
  EXPECT_EQ(message({"1", "1", "Bonn", "gas"}),
            "column 'town': the training set has no category 'Bonn'");
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { deploy::row_sample(graph, std::vector<std::string_view>{"1"}); }),
            "[runtime] expected 4 fields, one for each column, got 1");
}

TEST(CFaceSamples, ImagesMayHaveGapsGreyAndTransparency) {
  CModel c(shipped_model());
  const Image image = photo();
  const Tensor expected = deploy::image_samples(shipped_model(), {&image, 1});
  ASSERT_EQ(c.image(image.pixels, 21, 30, 3, 90), 0) << c.message;
  EXPECT_EQ(c.sample, bytes_of(expected));

  std::vector<std::uint8_t> transparent, with_gaps;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    transparent.insert(transparent.end(),
                       {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2], 9});
  }
  ASSERT_EQ(c.image(transparent, 21, 30, 4, 120), 0) << c.message;
  EXPECT_EQ(c.sample, bytes_of(expected));
  for (std::size_t y = 0; y < 21; ++y) {
    with_gaps.insert(with_gaps.end(), image.pixels.begin() + static_cast<std::ptrdiff_t>(90 * y),
                     image.pixels.begin() + static_cast<std::ptrdiff_t>(90 * (y + 1)));
    if (y < 20) with_gaps.insert(with_gaps.end(), 6, 255);
  }
  ASSERT_EQ(c.image(with_gaps, 21, 30, 3, 96), 0) << c.message;
  EXPECT_EQ(c.sample, bytes_of(expected));

  const Image grey = photo(21, 30, 1);
  ASSERT_EQ(c.image(grey.pixels, 21, 30, 1, 30), 0) << c.message;
  EXPECT_EQ(c.sample, bytes_of(deploy::image_samples(shipped_model(), {&grey, 1})));
}

TEST(CFaceSamples, ImagesThatDoNotFitAreErrors) {
  CModel c(shipped_model());
  const std::vector<std::uint8_t> pixels = photo().pixels;
  EXPECT_EQ(c.image(pixels, 21, 30, 2, 60), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_STREQ(c.message, "[runtime] expected 1, 3 or 4 channels");
  EXPECT_EQ(c.image(pixels, 21, 30, 3, 89), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_STREQ(c.message, "[runtime] expected 90 to 2147483648 bytes in a row, got 89");
  EXPECT_EQ(c.image(pixels, 0, 30, 3, 90), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(c.image(pixels, std::int64_t{1} << 40, std::int64_t{1} << 40, 3, SIZE_MAX),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_model_image(c.model, pixels.data(), 21, 30, 3, 90, c.sample.data(),
                                  kSampleBytes - 1, c.message, sizeof c.message),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_STREQ(c.message, "[runtime] expected 216 bytes for the sample, got 215");
  EXPECT_EQ(steelyard_model_image(c.model, nullptr, 21, 30, 3, 90, c.sample.data(), kSampleBytes,
                                  nullptr, 0),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
}

TEST(CFaceSamples, RowsHaveTheColumnsThatTheModelNames) {
  CModel c(model_of_rows(kColumns));
  ASSERT_EQ(steelyard_model_column_count(c.model), 4);
  EXPECT_STREQ(steelyard_model_column_name(c.model, 2), "town");
  EXPECT_EQ(steelyard_model_column_name(c.model, 4), nullptr);
  EXPECT_EQ(steelyard_model_column_name(c.model, -1), nullptr);
  EXPECT_EQ(steelyard_model_column_count(nullptr), 0);
  const char* fields[] = {"3", "NA", "Zug", "oil"};
  std::vector<float> sample(7);
  const auto row = [&](std::size_t count) {
    return steelyard_model_row(c.model, fields, count, sample.data(), sample.size() * 4, c.message,
                               sizeof c.message);
  };
  ASSERT_EQ(row(4), 0) << c.message;
  EXPECT_EQ(sample, (std::vector<float>{3, 71.5F, 0, 0, 1, 0, 1}));
  EXPECT_EQ(row(3), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  fields[3] = "wood";
  EXPECT_EQ(row(4), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_STREQ(c.message, "[runtime] column 'heating': the training set has no category 'wood'");
  fields[3] = nullptr;
  EXPECT_EQ(row(4), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  CModel images(shipped_model());
  EXPECT_EQ(steelyard_model_column_count(images.model), 0);
}

}  // namespace
}  // namespace steelyard
