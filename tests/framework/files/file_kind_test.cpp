#include "steelyard/framework/files/file_kind.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "steelyard/framework/data/cifar.h"
#include "steelyard/framework/data/idx.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

struct Example {
  std::string bytes;
  std::string kind;
};

std::string raw(const char* bytes, std::size_t size) { return {bytes, size}; }

template <std::size_t kSize>
std::string raw(const char (&bytes)[kSize]) {
  return raw(bytes, kSize - 1);
}

// A zip archive's first entry: signature, 22 bytes that do not matter, the name's length, the name.
std::string zip_of(const std::string& name) {
  return raw("PK\x03\x04") + std::string(22, '\0') + static_cast<char>(name.size()) +
         std::string(3, '\0') + name + "data";
}

const std::vector<Example>& examples() {
  static const std::vector<Example> kExamples{
      {"", "an empty file"},
      {" \n", "blank text"},
      {raw("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "a PNG image"},
      {raw("\xFF\xD8\xFF\xE0\0\x10JFIF"), "a JPEG image"},
      {raw("BM\x7A\0\0\0\0\0\0\0\x6C"), "a BMP image"},
      {raw("\x93NUMPY\x01\0v\0{'descr': '<f4', "), "a NumPy array"},
      {zip_of("archive/data.pkl"), "a PyTorch file (zip)"},
      {zip_of("weight.npy"), "NumPy arrays (npz)"},
      {zip_of("readme.txt"), "a zip archive"},
      {raw("PK\x03\x04"), "a zip archive"},
      {raw("\x1F\x8B\x08\0\0\0\0\0\0\x03"), "gzip"},
      {raw("\x89HDF\r\n\x1a\n\0\0"), "an HDF5 file"},
      {raw("\x80\x02\x8A\x0Al\xFC\x9C\x46\xF9 j\xA8P\x19."), "a PyTorch file (pickle)"},
      {raw("\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94."), "a Python pickle"},
      {raw("\x08\x08\x12\x07pytorch\x1A\x05"
           "1.0.0"),
       "an ONNX model"},
      {raw("\x08\x07:\xC0\x01\n"), "an ONNX model"},
      {raw("GGUF\x03\0\0\0"), "a GGUF model"},
      {raw("\x1C\0\0\0TFL3"), "a TensorFlow Lite model"},
      {raw("\0\0\x08\x03\0\0\0\x02"), "IDX images"},
      {raw("\0\0\x08\x01\0\0\0\x02"), "IDX labels"},
      {"{\"a\": [1, 2]}\n", "JSON"},
      {"[1, 2]\n", "JSON"},
      {"label,pixel1,pixel2\n5,0,0\n", "CSV"},
      {"1.5,2\r\n3,4\r\n", "CSV"},
      {"version: 1\nname: x\n", "YAML"},
      {"# A comment, with a comma\n\nversion: 1\n", "YAML"},
      {"<!DOCTYPE html>\n<title>Not found</title>", "HTML or XML"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:12\n",
       "a Git LFS pointer, not the file itself"},
      {"Dear reader\n", "text"},
      {raw("\xFF\xFEv\0e\0"), "UTF-16 text"},
      {std::string(100, '\0'), "a file that begins with zeros"},
      {std::string(300, 'a').substr(0, 257) + "ustar", "a tar archive"},
      {raw("\x02\0\0\0\0\0\0\0{}"), "a safetensors file"},
      // The length of this header has the bytes of gzip's signature.
      {raw("\x1F\x8B\0\0\0\0\0\0{\""), "a safetensors file"},
      {raw("\x01\x02\xFE\xFF\x05"), ""},
  };
  return kExamples;
}

TEST(FileKind, IsToldByContent) {
  for (const Example& example : examples()) {
    EXPECT_EQ(kind_of(example.bytes), example.kind) << printable(example.bytes);
  }
  EXPECT_EQ(looks_like("CSV"), " (it looks like CSV)");
  EXPECT_EQ(looks_like(""), "");
}

TEST(FileKind, ALongTextMayEndInsideACharacter) {
  const std::string text = std::string(kFileKindBytes - 1, 'x') + "\xC3\xA9";
  EXPECT_EQ(kind_of(text.substr(0, kFileKindBytes)), "text");
}

// Every reader says what it was given, whatever the file is called.
TEST(FileKind, ReadersNameWhatTheyWereGiven) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "weights.safetensors";
  for (const Example& example : examples()) {
    if (example.kind.empty() || example.kind == kSafetensorsKind) continue;
    write_bytes(file, example.bytes);
    EXPECT_EQ(message_of<InputError>([&] {
                read_safetensors(file);
              }).find(file.string() + ": not a safetensors file: it looks like " + example.kind),
              0u)
        << example.kind;
  }
  for (const Example& example : examples()) {
    if (example.kind.empty() || example.kind == "IDX images") continue;
    if (example.bytes.starts_with("\x1F\x8B")) continue;  // unpacked first
    write_bytes(file, example.bytes);
    EXPECT_NE(message_of<InputError>([&] {
                read_idx_images(file);
              }).find(": not IDX images: it looks like " + example.kind),
              std::string::npos)
        << example.kind;
  }
}

TEST(FileKind, APackedFileIsJudgedByWhatItHolds) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "images.gz";
  gzFile_s* packed = gzopen(path.c_str(), "wb");
  gzputs(packed, "label,pixel1\n5,0\n");
  gzclose(packed);
  EXPECT_NE(message_of<InputError>([&] {
              read_idx_images(path);
            }).find("not IDX images: it looks like CSV"),
            std::string::npos);
}

TEST(FileKind, CifarFilesOfAnotherFormatAreNamed) {
  const TemporaryFolder folder;
  write_bytes(folder / "data_batch_1.bin", "\x80\x03}q\x01(");
  EXPECT_NE(message_of<InputError>([&] {
              load_cifar10({.path = folder.path()});
            }).find("got 6 bytes (it looks like a Python pickle)"),
            std::string::npos);
}

}  // namespace
}  // namespace steelyard
