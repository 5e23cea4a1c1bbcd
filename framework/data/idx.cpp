#include "steelyard/framework/data/idx.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "steelyard/framework/data/arrays/stored_array.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/files/gzip_file.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;
constexpr std::int64_t kClasses = 10;

// A file whose contents must be there, and end where they should.
class IdxFile {
 public:
  explicit IdxFile(const std::filesystem::path& path) : file_(path) {}

  void read(void* into, std::uint64_t bytes, const std::string& what) {
    const std::uint64_t got = file_.read(into, bytes);
    if (got == bytes) return;
    fail("expected " + std::to_string(bytes) + " bytes of " + what + ", got " +
         std::to_string(got) + file_.reason());
  }

  std::uint32_t read_u32(const std::string& what) {
    std::array<unsigned char, 4> b = {};
    read(b.data(), b.size(), what);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }

  // What the file looks like, unpacked; from its beginning only.
  std::string kind() {
    std::array<char, kFileKindBytes> first = {};
    const std::uint64_t got = file_.read(first.data(), first.size());
    file_.rewind();
    if (got == 0 && file_.stored_bytes() > 0) return "";
    return kind_of({first.data(), static_cast<std::size_t>(got)});
  }

  // Also checks the checksum after packed data.
  void require_end() {
    char extra = 0;
    if (file_.read(&extra, 1) > 0) fail("expected the end of the file, got more bytes");
    if (!file_.reason().empty()) fail("damaged at its end" + file_.reason());
  }

  bool is_packed() const { return file_.is_packed(); }

  // The values of a plain file, which stay there: all that is after `begin`.
  StoredArray stored(std::uint64_t begin, const Shape& shape, const std::string& what) const {
    const auto bytes = static_cast<std::uint64_t>(shape_size(shape));
    const std::uint64_t got = file_.stored_bytes() - begin;
    if (got < bytes) {
      fail("expected " + std::to_string(bytes) + " bytes of " + what + ", got " +
           std::to_string(got));
    }
    if (got > bytes) {
      fail("expected the end of the file, got " + std::to_string(got - bytes) + " more bytes");
    }
    return {range_of_file(file_.file(), 0, file_.stored_bytes()),
            begin,
            file_.name(),
            StoredArray::Kind::kUnsigned,
            1,
            shape};
  }

  // A file of this size can hold `bytes`.
  void require_plausible(std::uint64_t bytes) {
    if (bytes / kDeflateRatio > file_.stored_bytes()) {
      fail("header asks for " + std::to_string(bytes) + " bytes, the file has " +
           std::to_string(file_.stored_bytes()));
    }
  }

  // Throws OutOfMemory that names the file.
  Tensor allocate(const Shape& shape) const {
    return with_memory_for(file_.name() + ": " + shape_string(shape) + " bytes",
                           [&] { return Tensor::empty(shape, DType::kU8); });
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(file_.name() + ": " + what);
  }

 private:
  GzipFile file_;
};

void require_magic(IdxFile& file, std::uint32_t expected, const std::string& what) {
  const std::string kind = file.kind();
  const bool other = !kind.empty() && kind != what;
  const std::string problem = other ? "not " + what + ": it looks like " + kind : "";
  if (other && !kind.starts_with("IDX")) file.fail(problem);
  const std::uint32_t magic = file.read_u32("magic number");
  if (magic != expected) {
    file.fail(problem + (other ? ": " : "") + "offset 0: expected magic " +
              std::to_string(expected) + ", got " + std::to_string(magic));
  }
}

std::int64_t read_dimension(IdxFile& file, const std::string& what) {
  const std::uint32_t value = file.read_u32(what);
  if (value == 0) file.fail("expected " + what + " above 0");
  return value;
}

std::filesystem::path plain_or_gzip(const std::filesystem::path& folder, const std::string& name) {
  return only_one_of(folder, {name, name + ".gz"});
}

std::filesystem::path existing(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path found = plain_or_gzip(folder, name);
  if (!found.empty()) return found;
  throw InputError(
      printable((folder / name).string()) +
      "[.gz]: not found: install the Debian package dataset-fashion-mnist or set data.path");
}

Dataset load_split(const std::filesystem::path& images, const std::filesystem::path& labels) {
  Dataset dataset = load_idx_images(images);
  dataset.targets = read_idx_labels(labels);
  require_target_for_each(dataset, printable(labels.string()));
  return dataset;
}

Dataset load_mnist_split(const std::filesystem::path& folder, const std::string& prefix) {
  const std::filesystem::path labels = existing(folder, prefix + "-labels-idx1-ubyte");
  Dataset dataset = load_split(existing(folder, prefix + "-images-idx3-ubyte"), labels);
  dataset.classes = kClasses;
  validate_dataset(dataset, printable(labels.string()));
  return dataset;
}

// The only file of a folder that one of `splits`, then `part` and "ubyte" name, as in
// emnist-letters-train-images-idx3-ubyte.gz; empty where there is none.
std::filesystem::path find_in(const std::filesystem::path& folder,
                              const std::vector<std::string>& splits, const std::string& part) {
  std::vector<std::filesystem::path> found = folder_entries(folder);
  std::erase_if(found, [&](const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    return std::none_of(splits.begin(), splits.end(), [&](const std::string& split) {
      const std::size_t at = name.find(split + "-" + part);
      return at != std::string::npos && name.find("ubyte", at) != std::string::npos;
    });
  });
  return only_one_of(found);
}

std::filesystem::path found_in(const std::filesystem::path& folder,
                               const std::vector<std::string>& splits, const std::string& part) {
  const std::filesystem::path found = find_in(folder, splits, part);
  if (!found.empty()) return found;
  std::string names;
  for (const std::string& split : splits) {
    names += (names.empty() ? "*" : " or *") + split + "-" + part + "*ubyte";
  }
  throw InputError(printable(folder.string()) + ": expected a file " + names +
                   ", with or without .gz" + (splits[0] == "test" ? kOrTestAside : ""));
}

Dataset load_found_split(const std::filesystem::path& folder,
                         const std::vector<std::string>& splits) {
  const std::filesystem::path labels = found_in(folder, splits, "labels");
  Dataset dataset = load_split(found_in(folder, splits, "images"), labels);
  dataset.classes = count_classes(dataset.targets, printable(labels.string()));
  return dataset;
}

}  // namespace

Dataset load_idx_images(const std::filesystem::path& path) {
  constexpr std::uint64_t kHeaderBytes = 16;
  IdxFile file(path);
  require_magic(file, kImagesMagic, "IDX images");
  const std::int64_t count = read_dimension(file, "image count");
  const std::int64_t height = read_dimension(file, "image height");
  const std::int64_t width = read_dimension(file, "image width");
  const Shape shape{count, height, width, 1};
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(count, height, &bytes) ||
      __builtin_mul_overflow(bytes, width, &bytes)) {
    file.fail("size of " + shape_string({count, height, width}) + " exceeds 63 bits");
  }
  Dataset dataset;
  if (!file.is_packed()) {
    dataset.source = array_samples(file.stored(kHeaderBytes, shape, "pixels"));
    return dataset;
  }
  file.require_plausible(static_cast<std::uint64_t>(bytes));
  dataset.inputs = file.allocate(shape);
  file.read(dataset.inputs.raw(), static_cast<std::uint64_t>(bytes), "pixels");
  file.require_end();
  return dataset;
}

Tensor read_idx_images(const std::filesystem::path& path) {
  return load_samples(load_idx_images(path)).inputs;
}

Tensor read_idx_labels(const std::filesystem::path& path) {
  IdxFile file(path);
  require_magic(file, kLabelsMagic, "IDX labels");
  const std::int64_t count = read_dimension(file, "label count");
  file.require_plausible(static_cast<std::uint64_t>(count));
  const Tensor bytes = file.allocate({count});
  file.read(bytes.raw(), static_cast<std::uint64_t>(count), "labels");
  file.require_end();
  return bytes.to(DType::kI64);
}

DatasetSplits load_idx(const DatasetRequest& request) {
  const std::filesystem::path& folder = request.path;
  require_folder(folder, "of IDX files");
  const std::vector<std::string> test{"test", "t10k"};
  const bool has_test =
      !find_in(folder, test, "images").empty() || !find_in(folder, test, "labels").empty();
  DatasetSplits splits;
  if (request.needs_train(has_test)) splits.train = load_found_split(folder, {"train"});
  if (!request.needs_test(has_test)) return splits;
  splits.test = load_found_split(folder, test);
  if (request.parts == DatasetParts::kTest) return splits;
  splits.test.classes = splits.train.classes;
  require_same_samples(splits, printable(folder.string()) + ": the test set", "the training set");
  return splits;
}

DatasetSplits load_fashion_mnist(const DatasetRequest& request) {
  const std::filesystem::path& folder = request.path;
  const bool has_test = !plain_or_gzip(folder, "t10k-images-idx3-ubyte").empty() ||
                        !plain_or_gzip(folder, "t10k-labels-idx1-ubyte").empty();
  DatasetSplits splits;
  if (request.needs_train(has_test)) splits.train = load_mnist_split(folder, "train");
  if (!request.needs_test(has_test)) return splits;
  splits.test = load_mnist_split(folder, "t10k");
  if (request.parts == DatasetParts::kTest) return splits;
  require_same_samples(splits, printable(folder.string()) + ": the test set", "the training set");
  return splits;
}

}  // namespace steelyard
