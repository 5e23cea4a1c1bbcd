#include "steelyard/framework/data/images/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/framework/data/image_files.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using Bytes = std::vector<std::uint8_t>;

Bytes pixels_of(const std::string& file, std::int64_t channels = 3) {
  return decode_image(file, channels, "f").pixels;
}

TEST(Images, StoredValuesOfPng) {
  const std::string grey16 = testing::png_file(2, 1, 16, 0, std::string("\0\x80\x00\x12\x80", 5));
  EXPECT_THAT(pixels_of(grey16, 1), ElementsAre(128, 18)) << "0x8000 / 257, 0x1280 / 257";
  const std::string grey_alpha =
      testing::png_file(2, 1, 8, 4, std::string("\0\x0A\x00\x14\xFF", 5));
  EXPECT_THAT(pixels_of(grey_alpha, 1), ElementsAre(10, 20)) << "transparency is dropped";
  const std::string palette =
      testing::png_file(3, 1, 2, 3, std::string("\0\x18", 2),
                        testing::png_chunk("PLTE", "\x01\x02\x03\x04\x05\x06\x07\x08\x09") +
                            testing::png_chunk("tRNS", std::string("\0", 1)));
  EXPECT_THAT(pixels_of(palette), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  const std::string gamma = testing::png_file(1, 1, 8, 0, std::string("\0\x64", 2),
                                              testing::png_chunk("gAMA", testing::big_endian(1)));
  EXPECT_THAT(pixels_of(gamma, 1), ElementsAre(100)) << "values as they are stored";
}

TEST(Images, OrientationIsApplied) {
  // 0 1 2
  // 3 4 5
  const Image image{2, 3, 1, {0, 1, 2, 3, 4, 5}};
  const std::vector<Bytes> expected{{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                    {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                    {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = oriented(image, orientation);
    EXPECT_EQ(turned.pixels, expected[static_cast<std::size_t>(orientation - 1)]) << orientation;
    EXPECT_EQ(turned.height, orientation >= 5 ? 3 : 2) << orientation;
    const std::string rows("\0\x00\x01\x02\0\x03\x04\x05", 8);
    const std::string png = testing::png_file(
        3, 2, 8, 0, rows, testing::png_chunk("eXIf", testing::exif_block(orientation)));
    EXPECT_EQ(decode_image(png, 1, "f"), turned) << orientation;
  }
  EXPECT_EQ(oriented(image, 9), image);
}

// Black ink takes away what the others leave; Adobe's programs store inks inverted.
TEST(Images, InksOfJpeg) {
  const std::string adobe = testing::jpeg_file(1, 1, 4, {255, 0, 127, 191});
  const Bytes inverted = pixels_of(adobe);
  EXPECT_NEAR(inverted[0], 191, 3);
  EXPECT_NEAR(inverted[1], 0, 3);
  EXPECT_NEAR(inverted[2], 127 * 191 / 255, 3);
  std::string plain = adobe;
  plain.replace(plain.find("Adobe"), 5, "other");
  EXPECT_NEAR(pixels_of(plain)[1], 64, 3) << "255 of all but black, which is 191";
  const std::string turned =
      testing::with_segment(testing::jpeg_file(2, 1, 1, {0, 255}), 0xE1,
                            std::string("Exif\0\0", 6) + testing::exif_block(6));
  EXPECT_EQ(decode_image(turned, 1, "f").height, 2);
}

// Each is refused in one line, before it costs memory or time.
TEST(Images, HostileFiles) {
  const std::string rows("\0\x01\x02\0\x03\x04", 6);
  const std::string png = testing::png_file(2, 2, 8, 0, rows);
  const std::string jpeg = testing::jpeg_file(16, 16, 3, Bytes(16 * 16 * 3, 100));
  const std::string webp = testing::webp_file(4, 4, Bytes(48, 7));
  const std::string bmp = testing::bmp_file(2, 1, 24, "", std::string(8, 'a'));
  std::string damaged = png;
  damaged[45] ^= 1;
  std::string huge_jpeg = jpeg;
  const std::size_t frame = jpeg.find("\xFF\xC0");
  for (std::size_t i = 5; i < 9; ++i) huge_jpeg[frame + i] = '\xFE';
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "expected an image, JPEG, PNG, WebP or BMP (it looks like an empty file)"},
      {"GIF89a", "(it looks like a GIF image)"},
      {"path,label\n1,2\n", "(it looks like CSV)"},
      {testing::png_file(100000, 100000, 8, 0, rows), "got 100000 x 100000"},
      {testing::png_file(0, 1, 8, 0, rows), "damaged PNG image"},
      {png.substr(0, png.size() - 20), "damaged PNG image: the file ends too early"},
      {png.substr(0, 20), "damaged PNG image: the file ends too early"},
      {damaged, "damaged PNG image: IDAT: "},
      {testing::png_file(2, 2, 8, 0, rows.substr(0, 4)),
       "damaged PNG image: Not enough image data"},
      {testing::png_file(2, 2, 3, 0, rows), "damaged PNG image"},
      {huge_jpeg, "got 65278 x 65278"},
      {jpeg.substr(0, jpeg.size() - 30), "damaged JPEG image: "},
      {jpeg.substr(0, 30), "damaged JPEG image: "},
      {webp.substr(0, webp.size() - 4), "damaged WebP image"},
      {webp.substr(0, 14), "damaged WebP image"},
      {testing::animated(webp), "expected one image, got an animated WebP"},
      {bmp.substr(0, bmp.size() - 1), "the file ends"},
      {bmp.substr(0, 30), "the file ends in its header"},
      {testing::bmp_file(2, 1, 24, "", "", 1), "compression 1 is not read"},
      {testing::bmp_file(2, 1, 16, "", std::string(8, 'a')), "16 bits per pixel are not read"},
      {testing::bmp_file(1 << 30, 1 << 30, 24, "", ""), "got 1073741824 x 1073741824"},
      {testing::bmp_file(-2, 1, 24, "", ""), "got -2 x 1"},
      {testing::bmp_file(2, 1, 8, std::string(4, 'p'), std::string(4, '\7')),
       "colour 7 of a palette of 1"},
  };
  for (const auto& [file, expected] : cases) {
    const std::string message =
        message_of<InputError>([&, &bytes = file] { decode_image(bytes, 3, "d/f"); });
    EXPECT_THAT(message, HasSubstr(expected));
    EXPECT_TRUE(message.starts_with("d/f: ")) << message;
  }
}

TEST(Images, BytesBetweenSegmentsAreHarmless) {
  const std::string jpeg = testing::jpeg_file(4, 4, 3, Bytes(48, 100));
  const std::string padded = jpeg.substr(0, 20) + std::string(3, '\0') + jpeg.substr(20);
  EXPECT_EQ(pixels_of(padded), pixels_of(jpeg));
}

Image numbered(std::int64_t height, std::int64_t width) {
  Image image{height, width, 1, Bytes(static_cast<std::size_t>(height * width))};
  std::iota(image.pixels.begin(), image.pixels.end(), std::uint8_t{0});
  return image;
}

TEST(Transforms, SizesAndCentre) {
  const ImageTransforms crop{.centre_crop = {{2, 3}}};
  EXPECT_THAT(transformed(numbered(4, 6), crop).pixels, ElementsAre(8, 9, 10, 14, 15, 16))
      << "1.5 pixels of room go to the even side";
  const Image shorter = transformed(numbered(10, 15), {.resize_shorter = 4});
  EXPECT_EQ(shorter.height, 4);
  EXPECT_EQ(shorter.width, 6);
  EXPECT_EQ(transformed(numbered(15, 10), {.resize_shorter = 4}).height, 6);
  EXPECT_EQ(transformed(numbered(5, 5), {.resize = {{5, 5}}}), numbered(5, 5));
  EXPECT_THAT(message_of<InputError>([&] { transformed(numbered(2, 2), crop); }),
              HasSubstr("expected an image of at least the 2 x 3 pixels"));
  EXPECT_THAT(
      message_of<InputError>([&] { transformed(numbered(1, 200), {.resize_shorter = 16384}); }),
      HasSubstr("got 3276800 x 16384"))
      << "a thin image must not become a huge one";
}

// Equal random numbers give the same part; its area and shape are within the limits.
TEST(Transforms, RandomResizedCropIsAFunctionOfItsNumbers) {
  const ImageTransforms transforms{.resize = {{8, 8}}, .random_area = {0.2, 0.5}};
  const Image image = numbered(12, 20);
  std::set<Bytes> different;
  for (std::uint64_t i = 0; i < 20; ++i) {
    Rng a(1, i), b(1, i);
    const Image out = random_resized_crop(image, transforms, a);
    EXPECT_EQ(out, random_resized_crop(image, transforms, b));
    EXPECT_LE(a.state().position, 64u) << "more words than a sample has";
    EXPECT_EQ(out.pixels.size(), 64u);
    different.insert(out.pixels);
  }
  EXPECT_GT(different.size(), 15u);
  Rng any(1);
  const ImageTransforms impossible{.resize = {{2, 2}}, .random_ratio = {50, 60}};
  EXPECT_EQ(random_resized_crop(numbered(12, 20), impossible, any).pixels.size(), 4u);
}

// Images in memory are transformed too.
TEST(Transforms, OfTensors) {
  DatasetRegistry registry;
  registry.add("t", "p", [](const DatasetRequest&) {
    const Dataset d{Tensor::full({4, 6, 6, 1}, 7, DType::kU8), Tensor::zeros({4}, DType::kI64), 1};
    return DatasetSplits{d, d};
  });
  const DatasetSplits splits =
      registry.load({.name = "t", .path = "p", .transforms = ImageTransforms{.resize = {{3, 2}}}});
  EXPECT_EQ(splits.test.sample_shape(), (Shape{3, 2, 1}));
  const Batch batch =
      make_batch(splits.train, {.batch_size = 4, .normalization = {}, .augment = {}}, 0, 0);
  EXPECT_EQ(batch.inputs.shape(), (Shape{4, 3, 2, 1}));
  EXPECT_FLOAT_EQ(batch.inputs.data<float>()[0], 7 / 255.0F);
}

}  // namespace
}  // namespace steelyard
