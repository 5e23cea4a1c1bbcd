#include "steelyard/framework/data/images/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/backend.h"
#include "tests/framework/data/image_files.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using Bytes = std::vector<std::uint8_t>;

// train/{cat,dog,10}/ and test/: grey PNG files of differing sizes.
class ImageFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    write("train", "cat", 12);
    write("train", "dog", 9);
    write("train", "10", 2);
    write("test", "dog", 3);
  }

  void write(const std::string& split, const std::string& name, int count) {
    const auto folder = root_.path() / split / name;
    std::filesystem::create_directories(folder);
    for (int i = 0; i < count; ++i) {
      const int side = 3 + i % 4;
      std::string rows;
      for (int y = 0; y < side; ++y) {
        rows += '\0';
        for (int x = 0; x < side; ++x) rows += static_cast<char>(17 * i + 5 * y + x);
      }
      const auto extent = static_cast<std::uint32_t>(side);
      testing::write_bytes(folder / (std::to_string(i) + ".PNG"),
                           testing::png_file(extent, extent, 8, 0, rows));
    }
  }

  DatasetRequest request(DatasetParts parts = DatasetParts::kAll) const {
    return {.name = "images",
            .path = root_.path(),
            .parts = parts,
            .transforms = ImageTransforms{.resize = {{4, 5}}, .grey = true}};
  }
  DatasetSplits load() const { return builtin_datasets().load(request()); }
  std::string error(const DatasetRequest& r) const {
    return message_of<InputError>([&] { builtin_datasets().load(r); });
  }

  testing::TemporaryFolder root_;
};

TEST_F(ImageFolder, ClassesAndSamples) {
  const DatasetSplits splits = load();
  EXPECT_THAT(splits.train.names.classes, ElementsAre("10", "cat", "dog"));
  EXPECT_EQ(splits.train.size(), 23);
  EXPECT_EQ(splits.train.sample_shape(), (Shape{4, 5, 1}));
  EXPECT_EQ(splits.test.classes, 3);
  EXPECT_EQ(splits.test.targets.data<std::int64_t>()[0], 2);
  EXPECT_THAT(splits.test.source->name(1), HasSubstr("test/dog/1.PNG"));
  // A trained model's classes, whatever folders are there now.
  DatasetRequest test_only = request(DatasetParts::kTest);
  test_only.names = DatasetNames{.classes = {"dog", "cat"}};
  std::filesystem::remove_all(root_ / "train");
  EXPECT_EQ(builtin_datasets().load(test_only).test.targets.data<std::int64_t>()[0], 0);
  test_only.names = DatasetNames{.classes = {"cat"}};
  EXPECT_THAT(error(test_only), HasSubstr("the training set has no class 'dog'"));
}

// Any number of threads gives the batches of one, from the middle of an epoch too; a row range of
// a batch gives its rows.
TEST_F(ImageFolder, BatchesDoNotDependOnThreads) {
  const Dataset train = load().train;
  LoaderOptions options{
      .batch_size = 10, .shuffle = true, .seed = 3, .normalization = {}, .augment = {}};
  Augmentation& augment = options.augment;
  augment.flip = augment.resized_crop = augment.random_crop = augment.rotation = true;
  augment.trivial_augment = augment.colour_jitter = augment.erasing = true;
  augment.mixup = augment.cutmix = true;
  augment.crop_padding = 1;
  options.normalization = compute_normalization(train);
  const int before = kernels::num_threads();
  for (const int threads : {1, 2, 5}) {
    kernels::set_num_threads(threads);
    DataLoader loader(train, options);
    for (const std::int64_t epoch : {0, 1}) {
      for (const std::int64_t first : {0, 1}) {
        loader.start(epoch, first);
        for (std::int64_t b = first; b < 3; ++b) {
          const auto batch = loader.next();
          const Batch expected = make_batch(train, options, epoch, b);
          ASSERT_TRUE(batch);
          EXPECT_TRUE(
              std::ranges::equal(batch->inputs.span<float>(), expected.inputs.span<float>()));
          EXPECT_TRUE(
              std::ranges::equal(batch->targets.span<float>(), expected.targets.span<float>()));
          const auto order = epoch_order(train, options, epoch);
          const Batch rows = make_batch_rows(train, options, order, epoch, b, 1, 2);
          EXPECT_TRUE(std::ranges::equal(rows.inputs.span<float>(),
                                         expected.inputs.span<float>().subspan(20, 40)));
          EXPECT_TRUE(std::ranges::equal(rows.targets.span<float>(),
                                         expected.targets.span<float>().subspan(3, 6)));
          const Batch first_row = make_batch_rows(train, options, order, epoch, b, 0, 1);
          EXPECT_TRUE(std::ranges::equal(first_row.inputs.span<float>(),
                                         expected.inputs.span<float>().first(20)));
        }
      }
    }
  }
  kernels::set_num_threads(before);
  const auto order = epoch_order(train, options, 0);
  EXPECT_THROW(make_batch_rows(train, options, order, 0, 2, 2, 2), std::out_of_range);
}

// The error names the file, and comes with the batch that has it, whichever thread meets it first.
TEST_F(ImageFolder, AnErrorComesWithItsBatch) {
  testing::write_bytes(root_ / "train/cat/3.PNG", "\x89PNG\r\n\x1A\nxx");
  testing::write_bytes(root_ / "train/cat/5.PNG", "nothing");
  const Dataset train = load().train;
  const LoaderOptions options{.batch_size = 4, .normalization = {}, .augment = {}};
  for (int i = 0; i < 10; ++i) {
    DataLoader loader(train, options, 4);
    loader.start(0);
    EXPECT_TRUE(loader.next());  // 10/0, 10/1, cat/0, cat/1
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT(message_of<InputError>([&] { loader.next(); }),
                  HasSubstr("train/cat/3.PNG: damaged PNG image"));
    }
  }
}

// A digest of the files: another path is the same data, another byte or class is not.
TEST_F(ImageFolder, DigestAndNormalizationFromTheFiles) {
  const auto digest = [&] {
    const DatasetSplits splits = load();
    return digest_of(std::array{splits.train, splits.test});
  };
  const DatasetSplits splits = load();
  const Normalization streamed = compute_normalization(splits.train);
  const Normalization held = compute_normalization(load_samples(splits.train));
  EXPECT_NEAR(streamed.mean[0], held.mean[0], 1e-6);
  EXPECT_NEAR(streamed.stddev[0], held.stddev[0], 1e-6);
  const std::string first = digest();
  std::filesystem::rename(root_ / "train/dog/0.PNG", root_ / "train/dog/00.PNG");
  EXPECT_EQ(digest(), first);
  std::filesystem::rename(root_ / "train/dog/00.PNG", root_ / "train/cat/000.PNG");
  EXPECT_NE(digest(), first);
}

TEST_F(ImageFolder, OneReadingTellsWhatASampleIsMadeOf) {
  const auto train = load().train.source;
  const auto selected = select_samples(load().train, std::vector<std::int64_t>{6, 3}).source;
  Bytes sample(20), same(20);
  train->read(3, nullptr, sample.data());
  for (const auto& [source, index] : {std::pair(train, 3), {selected, 1}}) {
    const SampleOrigin origin = source->read_with_origin(index, same.data());
    EXPECT_EQ(same, sample);
    EXPECT_EQ(origin.digest, train->content_digest(3));
    EXPECT_EQ(origin.image_size, (std::array<std::int64_t, 2>{4, 4}));
  }
}

TEST_F(ImageFolder, TestSetOfOneFolder) {
  DatasetRequest one = request();
  one.path = root_ / "train";
  EXPECT_THAT(error(one), HasSubstr("data.test says how many"));
  one.test_samples = 5;
  const DatasetSplits splits = builtin_datasets().load(one);
  EXPECT_EQ(splits.train.size(), 18);
  EXPECT_EQ(splits.test.size(), 5);
  EXPECT_EQ(splits.test.names.classes.size(), 3u);
  one.test_samples = 23;
  EXPECT_THAT(error(one), HasSubstr("data.test: expected a test set of 1 to 22"));
  one.path = root_.path();
  EXPECT_THAT(error(one), HasSubstr("data.test: the dataset has a test set of its own"));
}

TEST_F(ImageFolder, FoldersThatAreRefused) {
  const auto cat = root_.path() / "train/cat";
  const auto refused = [&](const std::string& expected) {
    EXPECT_THAT(error(request()), HasSubstr(expected));
  };
  testing::write_bytes(cat / "phone.HEIC", "");
  refused("train/cat/phone.HEIC: expected images named .jpg, .jpeg, .png, .webp or .bmp");
  std::filesystem::remove(cat / "phone.HEIC");
  ASSERT_EQ(::mkfifo((cat / "p.png").c_str(), 0600), 0);
  refused("train/cat/p.png: expected a file or a folder");
  std::filesystem::remove(cat / "p.png");
  std::filesystem::create_symlink("p.png", cat / "p.png");
  refused("train/cat/p.png: Too many levels of symbolic links");
  std::filesystem::remove(cat / "p.png");
  std::filesystem::create_directory_symlink("..", cat / "up");
  refused("links lead back to ");
  std::filesystem::remove(cat / "up");
  std::filesystem::create_symlink("absent", cat / "p.png");
  refused("train/cat/p.png: No such file");
  std::filesystem::remove(cat / "p.png");
  testing::write_bytes(root_ / "train/readme.png", "");
  refused("train/readme.png: expected one folder of images for each class");
  std::filesystem::remove(root_ / "train/readme.png");
  std::filesystem::create_symlink("absent", root_ / "train/cow");
  refused("train/cow: No such file");
  std::filesystem::remove(root_ / "train/cow");
  std::filesystem::create_directory(root_ / "train/empty");
  refused("train/empty: expected images in the folder");
  testing::write_bytes(root_ / "train/empty/a.txt", "");
  refused(
      "train/empty: expected images in the folder; left out a file that is no image by its "
      "name: a.txt");
  std::filesystem::remove_all(root_ / "train/empty");
  write("test", "wolf", 1);
  refused("test: the training set has no class 'wolf'");
}

TEST_F(ImageFolder, OtherFilesAreNamedOnceAndLeftOut) {
  EXPECT_TRUE(load().notes.empty());
  for (const char* name : {"readme.txt", "cat/Thumbs.db", "cat/.DS_Store", "cat/desktop.ini",
                           "dog/a/notes", "dog/labels.csv", "dog/x.json"}) {
    const auto path = root_ / "train" / name;
    std::filesystem::create_directories(path.parent_path());
    testing::write_bytes(path, "x");
  }
  testing::write_bytes(root_ / "test/dog/readme", "x");
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.size(), 23);
  EXPECT_THAT(splits.notes,
              ElementsAre(HasSubstr("train: left out 7 files that are no images by their names: "
                                    "cat/.DS_Store, cat/Thumbs.db, cat/desktop.ini, dog/a/notes, "
                                    "dog/labels.csv and 2 more"),
                          HasSubstr("test: left out a file that is no image by its name: "
                                    "dog/readme")));
}

// What training refuses is a sample of its own for `predict`, whose reading is an error.
TEST_F(ImageFolder, UnreadableImagesMayBeListed) {
  const auto dog = root_ / "test/dog";
  std::filesystem::create_symlink("absent", dog / "3.png");
  std::filesystem::create_symlink("absent", dog / "other");
  testing::write_bytes(dog / "4.gif", "GIF89a");
  testing::write_bytes(dog / "5.png", "\x89PNG\r\n\x1A\n");
  EXPECT_THROW(find_images(dog, UnreadableImages::kRefuse), InputError);
  FoundImages found = find_images(dog, UnreadableImages::kList);
  EXPECT_EQ(found.paths.size(), 6U);
  EXPECT_EQ(found.others.count, 1);
  const auto samples =
      image_samples(std::make_shared<ImageFiles>(found.paths), {.grey = true}, Shape{4, 4, 1});
  Bytes pixels(16);
  EXPECT_THAT(message_of<InputError>([&] { samples->read(0, nullptr, pixels.data()); }),
              HasSubstr("0.PNG: expected 4 x 4 pixels as the model takes, got 3 x 3"));
  samples->read(1, nullptr, pixels.data());
  for (const std::int64_t bad : {3, 4, 5}) {
    EXPECT_THROW(samples->read(bad, nullptr, pixels.data()), InputError);
  }
  // A link to the folder itself.
  std::filesystem::create_directory_symlink(".", dog / "loop");
  found = find_images(dog, UnreadableImages::kList);
  EXPECT_EQ(found.paths.size(), 7U);
  EXPECT_EQ(found.paths.back(), (dog / "loop").string());
}

TEST_F(ImageFolder, ListedInATable) {
  std::filesystem::remove_all(root_ / "test");
  testing::write_bytes(root_ / "test.csv",
                       "path,label\ntrain/cat/0.PNG,cat\n\"train/dog/1.PNG\",dog\n");
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.test.size(), 2);
  EXPECT_EQ(splits.test.targets.data<std::int64_t>()[1], 2);
  testing::write_bytes(root_ / "test.csv", "label, path\ncat ,train/cat/0.PNG\n");
  EXPECT_EQ(load().test.names.classes, splits.test.names.classes)
      << "columns in any order, whatever spaces are around words";
  testing::write_bytes(root_ / "test.csv",
                       "path,label\ntrain/cat/0.PNG,cat\ntrain/./cat/0.PNG,cat\n");
  EXPECT_EQ(load().test.size(), 2) << "a file that is listed twice counts twice";
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"path,name\nx,y\n", "test.csv:1: expected the columns path and label, and no other"},
           {"path,label,id\nx,y,1\n", "test.csv:1: expected the columns path and label, and no"},
           {"path,label\ntrain/cat,cat\n", "test.csv:2: expected a file, got the folder "},
           {"path,label\n\ntrain/none.png,cat\n", "test.csv:3: there is no file "},
           {"path,label\ntrain/cat/0.PNG\n", "test.csv:2: expected a path and a label"},
           {"path,label\ntrain/cat/0.PNG, \n", "test.csv:2: expected a path and a label"},
           {"path,label\ntrain/cat/0.PNG,cat\n\ntrain/dog/1.PNG,cow\n",
            "test.csv:4: the training set has no class 'cow'"},
           {"path,label\ntrain/cat/0.PNG,cat\ntrain/dog/1.PNG,dog\ntrain/./cat/0.PNG,dog\n",
            "train/./cat/0.PNG has the label 'dog' here and 'cat' in line 2"},
           {"path,label\n", "test.csv:1: expected rows"}}) {
    testing::write_bytes(root_ / "test.csv", text);
    EXPECT_THAT(error(request()), HasSubstr(expected));
  }
  DatasetRequest labels = request(DatasetParts::kTest);
  labels.targets.kind = TargetKind::kMarks;
  labels.names = DatasetNames{.classes = {"a", "b"}};
  testing::write_bytes(root_ / "test.csv",
                       "path,label\ntrain/cat/0.PNG,a|b\ntrain/cat/0.PNG,b|a\n");
  EXPECT_EQ(builtin_datasets().load(labels).test.size(), 2) << "labels in any order";
  const std::filesystem::path deep =
      std::filesystem::path(std::string(120, 'a')) / std::string(120, 'b');
  std::filesystem::create_directories(root_ / deep);
  std::filesystem::copy(root_ / "train/cat/0.PNG", root_ / deep / "0.PNG");
  testing::write_bytes(root_ / "test.csv", "path,label\n" + (deep / "0.PNG").string() + ",cat\n");
  EXPECT_EQ(builtin_datasets().load(request()).test.source->name(0),
            (root_ / deep / "0.PNG").string());
  std::filesystem::create_directory(root_ / "test");
  EXPECT_THAT(error(request()), HasSubstr("test.csv: expected it or test, got both: remove one"));
}

TEST_F(ImageFolder, ImagesOfOneSizeNeedNoTransforms) {
  DatasetRequest plain = request();
  plain.transforms = ImageTransforms{.grey = true};
  const Dataset train = builtin_datasets().load({.name = "images", .path = root_.path()}).train;
  EXPECT_EQ(train.sample_shape(), (Shape{3, 3, 3}));
  const LoaderOptions options{.batch_size = 4, .normalization = {}, .augment = {}};
  EXPECT_THAT(message_of<InputError>([&] { make_batch(train, options, 0, 0); }),
              HasSubstr("train/10/1.PNG: expected 3 x 3 pixels as the first image has, got 4 x 4"));
  // Whatever is wrong with the first image shows when it is read: the next one tells the size.
  std::filesystem::remove(root_ / "test/dog/0.PNG");
  testing::write_bytes(root_ / "train/10/0.PNG", "\x89PNG\r\n\x1A\nxx");
  const Dataset damaged = builtin_datasets().load({.name = "images", .path = root_.path()}).train;
  EXPECT_EQ(damaged.sample_shape(), (Shape{4, 4, 3}));
  LoaderOptions random = options;
  random.augment.resized_crop = true;
  EXPECT_THAT(message_of<InputError>([&] { validate_options(train, random); }),
              HasSubstr("random_resized_crop needs images and data.transforms"));
}

std::string tar_entry(const std::string& name, const std::string& data, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  std::array<char, 32> octal = {};
  std::snprintf(octal.data(), octal.size(), "%011zo", data.size());
  put(124, octal.data());
  put(148, std::string(8, ' '));
  put(156, std::string(1, type));
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(octal.data(), octal.size(), "%06o", sum);
  put(148, std::string(octal.data()) + '\0');
  return header + data + std::string((512 - data.size() % 512) % 512, '\0');
}

TEST_F(ImageFolder, ShardsHoldTheSame) {
  const std::string end(1024, '\0');
  std::string train = tar_entry("./", "", '5'), test;
  const auto bytes = [&](const std::string& path) { return testing::read_bytes(root_ / path); };
  for (const std::string name : {"10/0", "10/1", "cat/0", "dog/5"}) {
    const std::string label = name.substr(0, name.find('/'));
    const std::string image = bytes("train/" + name + ".PNG");
    train += tar_entry(name + ".png", image) + tar_entry(name + ".cls", label + "\n");
    test = tar_entry("x.cls", label) + tar_entry("x.png", image);  // in either order
  }
  DatasetRequest shards = request();
  shards.name = "shards";
  testing::write_bytes(root_ / "train-1.tar", train + end);
  testing::write_bytes(root_ / "train-2.tar", train + end);
  testing::write_bytes(root_ / "test.tar", test + end);
  const DatasetSplits splits = builtin_datasets().load(shards);
  EXPECT_THAT(splits.train.names.classes, ElementsAre("10", "cat", "dog"));
  ASSERT_EQ(splits.train.size(), 8);
  EXPECT_THAT(splits.train.source->name(6), HasSubstr("train-2.tar: cat/0.png"));
  EXPECT_EQ(splits.test.targets.data<std::int64_t>()[0], 2);
  Bytes a(20), b(20);
  splits.train.source->read(6, nullptr, a.data());
  load().train.source->read(2, nullptr, b.data());
  EXPECT_EQ(a, b);
  EXPECT_EQ(splits.train.source->content_digest(6), load().train.source->content_digest(2));

  const std::string image = bytes("train/cat/0.PNG");
  const std::vector<std::pair<std::string, std::string>> cases{
      {train, "its end is missing"},
      {tar_entry("a.png", std::string(1000, 'x')).substr(0, 700), "a file that the archive cuts"},
      {std::string(512, 'x'), "train-1.tar: byte 0: not the header of a file"},
      {tar_entry("a.png", image) + end, "a: expected a text a.cls, got a.png"},
      {tar_entry("a.png", image) + tar_entry("b.cls", "x") + end, "a: expected a text a.cls"},
      {tar_entry("a.png", image) + tar_entry("a.jpg", image) + end, "got both a.png and a.jpg"},
      {tar_entry("a.png", image) + tar_entry("a.cls", " \n") + end, "a.cls: expected the name"},
      {tar_entry("a.png", "", '2') + end, "a.png is of type '2'"},
      {tar_entry("p", "99 path=\n", 'x') + end, "a damaged extended header"}};
  for (const auto& [file, expected] : cases) {
    testing::write_bytes(root_ / "train-1.tar", file);
    EXPECT_THAT(error(shards), HasSubstr(expected));
    EXPECT_THAT(error(shards), HasSubstr("train-1.tar: "));
  }
  testing::write_bytes(root_ / "train-1.tar", end);
  EXPECT_EQ(builtin_datasets().load(shards).train.size(), 4);
}

}  // namespace
}  // namespace steelyard
