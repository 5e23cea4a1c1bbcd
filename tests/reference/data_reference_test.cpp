// Images, tables, arrays, archives and datasets against Pillow, NumPy, Python's csv and tarfile:
// usage: FOLDER of write_data_files.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/images/effects.h"
#include "steelyard/framework/data/images/image.h"
#include "steelyard/framework/data/images/resize.h"
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

// The same libraries decode: byte for byte, in colour and in grey.
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

TEST(DataReference, ResizingIsWithinOneGreyLevelOfPillow) {
  int largest = 0;
  for (const auto& c : files().manifest["resizing"]) {
    Image image{c["image"][0], c["image"][1], c["image"][2], {}};
    const std::string_view data = files().expected_of(c);
    const auto size = static_cast<std::size_t>(image.height * image.width * image.channels);
    image.pixels.assign(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(size));
    const Image out = resized(image, c["size"][0], c["size"][1],
                              value_of<Interpolation>(c["interpolation"].get<std::string>()));
    const std::string_view expected = data.substr(size);
    ASSERT_EQ(out.pixels.size(), expected.size()) << c;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(
          largest, std::abs(int{out.pixels[i]} - int{static_cast<unsigned char>(expected[i])}));
    }
  }
  RecordProperty("largest_difference", largest);
  EXPECT_LE(largest, 1);
}

TEST(DataReference, EffectsAreWithinOneGreyLevelOfPillow) {
  std::size_t cases = 0;
  for (const auto& c : files().manifest["effects"]) {
    Image image{c["image"][0], c["image"][1], c["image"][2], {}};
    const std::string_view data = files().expected_of(c);
    const auto size = data.size() / 2;
    image.pixels.assign(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(size));
    const auto effect = std::ranges::find(image_effects(), c["name"], &ImageEffect::name);
    ASSERT_NE(effect, image_effects().end()) << c;
    const Image out = effect->apply(image, c["amount"]);
    ASSERT_EQ(out.pixels.size(), size) << c;
    int largest = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const int expected = static_cast<unsigned char>(data[size + i]);
      largest = std::max(largest, std::abs(int{out.pixels[i]} - expected));
    }
    EXPECT_LE(largest, 1) << c;
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
      EXPECT_EQ(reader.at(record.begin, record.end).fields, record.fields) << c["file"];
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
