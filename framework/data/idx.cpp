#include "framework/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "framework/error.h"
#include "framework/files.h"

namespace steelyard {
namespace {

constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;
constexpr std::int64_t kClasses = 10;
// No deflate stream expands by more (zlib's technical notes: 1032:1): bounds what a header claims.
constexpr std::uint64_t kDeflateRatio = 1032;

// A file read through zlib, which passes plain files on as they are.
class GzipFile {
 public:
  explicit GzipFile(const std::filesystem::path& path)
      : name_(printable(path.string())), stored_bytes_(InputFile(path).size()) {
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) throw InputError(name_ + ": cannot open");
    gzbuffer(file_.get(), 1 << 17);
  }

  void read(void* into, std::uint64_t bytes, const std::string& what) {
    std::uint64_t done = 0;
    while (done < bytes) {
      const auto piece = static_cast<unsigned>(std::min<std::uint64_t>(bytes - done, 1 << 30));
      const int got = gzread(file_.get(), static_cast<char*>(into) + done, piece);
      if (got <= 0) {
        fail("expected " + std::to_string(bytes) + " bytes of " + what + ", got " +
             std::to_string(done) + reason());
      }
      done += static_cast<std::uint64_t>(got);
    }
  }

  std::uint32_t read_u32(const std::string& what) {
    std::array<unsigned char, 4> b = {};
    read(b.data(), b.size(), what);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }

  // Also makes zlib check the checksum behind the data.
  void require_end() {
    char extra = 0;
    const int got = gzread(file_.get(), &extra, 1);
    if (got > 0) fail("expected the end of the file, got more bytes");
    if (got < 0 || !reason().empty()) fail("damaged at its end" + reason());
  }

  // A file of this size can hold `bytes`.
  void require_plausible(std::uint64_t bytes) {
    if (bytes / kDeflateRatio > stored_bytes_) {
      fail("header asks for " + std::to_string(bytes) + " bytes, the file has " +
           std::to_string(stored_bytes_));
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw InputError(name_ + ": " + what); }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose_r(file); }
  };

  std::string reason() const {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return "";
    return " (" + printable(text) + ")";
  }

  std::string name_;
  std::uint64_t stored_bytes_;
  std::unique_ptr<gzFile_s, Close> file_;
};

void require_magic(GzipFile& file, std::uint32_t expected) {
  const std::uint32_t magic = file.read_u32("magic number");
  if (magic != expected) {
    file.fail("offset 0: expected magic " + std::to_string(expected) + ", got " +
              std::to_string(magic));
  }
}

std::int64_t read_dimension(GzipFile& file, const std::string& what) {
  const std::uint32_t value = file.read_u32(what);
  if (value == 0) file.fail("expected " + what + " above 0");
  return value;
}

std::filesystem::path existing(const std::filesystem::path& folder, const std::string& name) {
  for (const char* suffix : {".gz", ""}) {
    const std::filesystem::path path = folder / (name + suffix);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw InputError(
      printable((folder / name).string()) +
      "[.gz]: not found: install the Debian package dataset-fashion-mnist or set data.path");
}

Dataset load_split(const std::filesystem::path& folder, const std::string& prefix) {
  const std::filesystem::path labels_path = existing(folder, prefix + "-labels-idx1-ubyte");
  Dataset dataset;
  dataset.inputs = read_idx_images(existing(folder, prefix + "-images-idx3-ubyte"));
  dataset.targets = read_idx_labels(labels_path);
  dataset.classes = kClasses;
  validate_dataset(dataset, printable(labels_path.string()));
  return dataset;
}

}  // namespace

Tensor read_idx_images(const std::filesystem::path& path) {
  GzipFile file(path);
  require_magic(file, kImagesMagic);
  const std::int64_t count = read_dimension(file, "image count");
  const std::int64_t height = read_dimension(file, "image height");
  const std::int64_t width = read_dimension(file, "image width");
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(count, height, &bytes) ||
      __builtin_mul_overflow(bytes, width, &bytes)) {
    file.fail("size of " + shape_string({count, height, width}) + " exceeds 63 bits");
  }
  file.require_plausible(static_cast<std::uint64_t>(bytes));
  Tensor images = Tensor::empty({count, height, width, 1}, DType::kU8);
  file.read(images.raw(), static_cast<std::uint64_t>(bytes), "pixels");
  file.require_end();
  return images;
}

Tensor read_idx_labels(const std::filesystem::path& path) {
  GzipFile file(path);
  require_magic(file, kLabelsMagic);
  const std::int64_t count = read_dimension(file, "label count");
  file.require_plausible(static_cast<std::uint64_t>(count));
  const Tensor bytes = Tensor::empty({count}, DType::kU8);
  file.read(bytes.raw(), static_cast<std::uint64_t>(count), "labels");
  file.require_end();
  return bytes.to(DType::kI64);
}

DatasetSplits load_fashion_mnist(const std::filesystem::path& folder, DatasetParts parts) {
  if (parts == DatasetParts::kTest) return {{}, load_split(folder, "t10k")};
  DatasetSplits splits{load_split(folder, "train"), load_split(folder, "t10k")};
  if (splits.train.inputs.dim(1) != splits.test.inputs.dim(1) ||
      splits.train.inputs.dim(2) != splits.test.inputs.dim(2)) {
    throw InputError(printable(folder.string()) + ": train images are " +
                     shape_string(splits.train.inputs.shape()) + ", test images " +
                     shape_string(splits.test.inputs.shape()));
  }
  return splits;
}

}  // namespace steelyard
