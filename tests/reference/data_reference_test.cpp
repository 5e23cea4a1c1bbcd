// Images, tables, arrays, archives and datasets against Pillow, NumPy, Python's csv and tarfile:
// usage: FOLDER of write_data_files.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/images/effects.h"
#include "steelyard/framework/data/images/image.h"
#include "steelyard/framework/data/images/resize.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/data/shards/tar.h"
#include "steelyard/framework/data/tables/csv.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

std::filesystem::path folder;  // NOLINT: the program's argument

struct Files {
  Files()
      : manifest(nlohmann::json::parse(testing::read_bytes(folder / "manifest.json"))),
        expected(testing::read_bytes(folder / "expected.bin")) {}

  std::string_view expected_of(const nlohmann::json& c) const {
    return std::string_view(expected).substr(c["offset"], c["bytes"]);
  }

  nlohmann::json manifest;
  std::string expected;
};

const Files& files() {
  static const Files all;
  return all;
}

std::string_view bytes_of(const std::vector<std::uint8_t>& pixels) {
  return {reinterpret_cast<const char*>(pixels.data()), pixels.size()};
}

std::filesystem::path path_of(const nlohmann::json& c, const char* key = "file") {
  return folder / c[key].get<std::string>();
}

// Images equal Pillow's byte for byte, in colour and in grey: the same libraries decode.
TEST(DataReference, Images) {
  std::int64_t cases = 0;
  for (const auto& c : files().manifest["images"]) {
    const std::string what = c["file"].get<std::string>() + " " + c["kind"].get<std::string>();
    const Image image = read_image(path_of(c).string(), 3);
    ASSERT_EQ(image.height, c["shape"][0]) << what;
    ASSERT_EQ(image.width, c["shape"][1]) << what;
    const Image grey = read_image(path_of(c).string(), 1);
    const std::string_view expected = files().expected_of(c);
    EXPECT_EQ(bytes_of(image.pixels), expected.substr(0, image.pixels.size())) << what;
    EXPECT_EQ(bytes_of(grey.pixels), expected.substr(image.pixels.size())) << what;
    ++cases;
  }
  EXPECT_EQ(cases, 1000);
}

// The image that a case begins with.
Image image_of(const nlohmann::json& c) {
  Image image{c["image"][0], c["image"][1], c["image"][2], {}};
  const std::string_view data = files().expected_of(c).substr(
      0, static_cast<std::size_t>(image.height * image.width * image.channels));
  image.pixels.assign(data.begin(), data.end());
  return image;
}

// The largest difference from what Pillow made of it, which is behind it.
int difference_from_pillow(const nlohmann::json& c, const Image& out) {
  const std::string_view expected = files().expected_of(c).substr(image_of(c).pixels.size());
  if (out.pixels.size() != expected.size()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest,
                       std::abs(int{out.pixels[i]} - int{static_cast<unsigned char>(expected[i])}));
  }
  return largest;
}

Interpolation interpolation_of(const nlohmann::json& c) {
  return value_of<Interpolation>(c["interpolation"].get<std::string>());
}

TEST(DataReference, ResizingIsWithinOneGreyLevelOfPillow) {
  int largest = 0;
  for (const auto& c : files().manifest["resizing"]) {
    const Image out = resized(image_of(c), c["size"][0], c["size"][1], interpolation_of(c));
    largest = std::max(largest, difference_from_pillow(c, out));
  }
  RecordProperty("largest_difference", largest);
  EXPECT_LE(largest, 1);
}

TEST(DataReference, TransformsAreWithinOneGreyLevelOfPillow) {
  std::int64_t cases = 0;
  for (const auto& c : files().manifest["transforms"]) {
    ImageTransforms transforms{.interpolation = interpolation_of(c)};
    transforms.centre_crop = c["centre_crop"].get<std::array<std::int64_t, 2>>();
    if (c.contains("resize")) transforms.resize = c["resize"].get<std::array<std::int64_t, 2>>();
    if (c.contains("resize_shorter")) transforms.resize_shorter = c["resize_shorter"];
    EXPECT_LE(difference_from_pillow(c, transformed(image_of(c), transforms)), 1) << c;
    ++cases;
  }
  EXPECT_EQ(cases, 120);
}

// Equal random numbers draw the same part of the image.
TEST(DataReference, RandomResizedCropsAreWithinOneGreyLevelOfPillow) {
  std::int64_t cases = 0;
  for (const auto& c : files().manifest["crops"]) {
    const ImageTransforms transforms{.resize = c["resize"].get<std::array<std::int64_t, 2>>(),
                                     .interpolation = interpolation_of(c),
                                     .random_area = c["random_area"],
                                     .random_ratio = c["random_ratio"]};
    Rng random(c["seed"].get<std::uint64_t>(), c["stream"].get<std::uint64_t>());
    const Image out = random_resized_crop(image_of(c), transforms, random);
    EXPECT_LE(difference_from_pillow(c, out), 1) << c;
    ++cases;
  }
  EXPECT_EQ(cases, 120);
}

// Which of the images that lie one behind the other, as many as there are, each sample is.
std::vector<int> variants_of(const Tensor& inputs, std::string_view expected) {
  std::vector<int> variants;
  const auto size = static_cast<std::size_t>(inputs.size());
  const auto each = size / static_cast<std::size_t>(inputs.dim(0));
  for (std::size_t begin = 0; begin < size; begin += each) {
    std::string sample;
    for (const float value : inputs.span<float>().subspan(begin, each)) {
      sample += static_cast<char>(std::lround(value * 255));
    }
    int variant = 0;
    while (variant < 4 &&
           sample != expected.substr(static_cast<std::size_t>(variant) * size + begin, each)) {
      ++variant;
    }
    variants.push_back(variant);
  }
  return variants;
}

// In the order of write_data_files.py: 0 as it is, 1 mirrored, 2 upside down, 3 both.
TEST(DataReference, FlipsArePillows) {
  for (const auto& c : files().manifest["flips"]) {
    const std::string_view data = files().expected_of(c);
    const Tensor images = Tensor::empty(c["shape"].get<Shape>(), DType::kU8);
    std::memcpy(images.raw(), data.data(), static_cast<std::size_t>(images.bytes()));
    const Dataset dataset{images, Tensor::zeros({images.dim(0)}, DType::kI64), 1};
    const auto variants = [&](bool flip, bool vertical_flip) {
      const LoaderOptions options{.batch_size = dataset.size(),
                                  .normalization = {},
                                  .augment = {.flip = flip, .vertical_flip = vertical_flip}};
      return variants_of(make_batch(dataset, options, 0, 0).inputs, data);
    };
    const std::vector<int> mirrored = variants(true, false), turned = variants(false, true);
    const std::vector<int> both = variants(true, true);
    for (const auto& [found, variant] : {std::pair(mirrored, 1), std::pair(turned, 2)}) {
      EXPECT_GT(std::ranges::count(found, variant), 20);
      EXPECT_EQ(std::ranges::count(found, variant) + std::ranges::count(found, 0), 64);
    }
    for (std::size_t i = 0; i < both.size(); ++i) {
      EXPECT_EQ(both[i], mirrored[i] + turned[i]) << "each has numbers of its own";
    }
  }
  EXPECT_EQ(files().manifest["flips"].size(), 2U);
}

TEST(DataReference, EffectsAreWithinOneGreyLevelOfPillow) {
  std::size_t cases = 0;
  for (const auto& c : files().manifest["effects"]) {
    const auto name = c["name"].get<std::string>();
    const auto effect = std::ranges::find(image_effects(), name, &ImageEffect::name);
    ASSERT_NE(effect, image_effects().end()) << c;
    EXPECT_LE(difference_from_pillow(c, effect->apply(image_of(c), c["amount"])), 1) << c;
    ++cases;
  }
  EXPECT_EQ(cases, 12 * image_effects().size());
}

TEST(DataReference, Tables) {
  EXPECT_EQ(files().manifest["tables"].size(), 1000U);
  for (const auto& c : files().manifest["tables"]) {
    CsvReader reader(path_of(c), c["delimiter"].get<std::string>()[0]);
    CsvRecord record;
    std::vector<std::vector<std::string>> rows;
    while (reader.next(record)) {
      EXPECT_EQ(reader.at(record.begin, record.end, record.line).fields, record.fields)
          << c["file"];
      rows.push_back(record.fields);
    }
    EXPECT_EQ(rows, c["rows"].get<std::vector<std::vector<std::string>>>()) << c["file"];
  }
}

TEST(DataReference, Arrays) {
  EXPECT_EQ(files().manifest["arrays"].size(), 1000U);
  for (const auto& c : files().manifest["arrays"]) {
    NpyFile arrays(path_of(c));
    const auto samples = array_samples(arrays.array("inputs"));
    const auto single = array_samples(NpyFile(path_of(c, "single")).array(""));
    const std::string_view expected = files().expected_of(c);
    const auto bytes = static_cast<std::size_t>(sample_bytes(*samples));
    std::string one(bytes, '\0'), other(bytes, '\0');
    for (std::int64_t i = 0; i < samples->size(); ++i) {
      samples->read(i, nullptr, one.data());
      single->read(i, nullptr, other.data());
      EXPECT_EQ(one, expected.substr(static_cast<std::size_t>(i) * bytes, bytes)) << c;
      EXPECT_EQ(one, other) << c;
    }
    const Tensor targets = array_targets(arrays.array("targets"));
    EXPECT_EQ(std::string_view(static_cast<const char*>(targets.raw()),
                               static_cast<std::size_t>(targets.bytes())),
              expected.substr(static_cast<std::size_t>(samples->size()) * bytes))
        << c;
  }
}

TEST(DataReference, Archives) {
  EXPECT_EQ(files().manifest["archives"].size(), 1000U);
  for (const auto& c : files().manifest["archives"]) {
    const InputFile archive(path_of(c));
    std::vector<std::string> names;
    std::vector<std::uint64_t> sizes;
    std::string data;
    for (const TarMember& member : tar_members(archive)) {
      names.push_back(member.name);
      sizes.push_back(member.size);
      std::string bytes(member.size, '\0');
      archive.read(member.begin, bytes.data(), bytes.size());
      data += bytes;
    }
    EXPECT_EQ(names, c["names"].get<std::vector<std::string>>()) << c["file"];
    EXPECT_EQ(sizes, c["sizes"].get<std::vector<std::uint64_t>>()) << c["file"];
    EXPECT_EQ(data, files().expected_of(c)) << c["file"];
  }
}

std::string_view bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())};
}

DatasetRequest request_of(const nlohmann::json& c) {
  DatasetRequest request{.name = c["dataset"], .path = path_of(c, "path")};
  if (c.contains("target")) {
    request.table = TableOptions{.target = {c["target"].get<std::string>()},
                                 .categories = c["categories"],
                                 .ignore = c["ignore"],
                                 .missing = c["missing"]};
  }
  return request;
}

// All samples and targets, wherever the dataset keeps them.
TEST(DataReference, Datasets) {
  std::map<std::string, std::int64_t> samples;
  for (const auto& c : files().manifest["datasets"]) {
    const DatasetSplits splits = builtin_datasets().load(request_of(c));
    EXPECT_EQ(splits.train.sample_shape(), c["shape"].get<Shape>()) << c["path"];
    std::string found;
    for (const Dataset* dataset : {&splits.train, &splits.test}) {
      found.append(bytes_of(load_samples(*dataset).inputs)).append(bytes_of(dataset->targets));
      samples[c["dataset"]] += dataset->size();
    }
    EXPECT_TRUE(found == files().expected_of(c)) << c["path"];
  }
  for (const char* name : {"fashion_mnist", "idx", "cifar10", "cifar100", "safetensors", "table"}) {
    EXPECT_GE(samples[name], 1000) << name;
  }
}

}  // namespace
}  // namespace steelyard

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  steelyard::folder = argv[1];
  if (!std::filesystem::exists(steelyard::folder / "manifest.json")) return 77;
  return RUN_ALL_TESTS();
}
