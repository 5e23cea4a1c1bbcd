#include "steelyard/framework/data/arrays/array_files.h"

#include <utility>

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/arrays/stored_array.h"
#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const SampleSource> sample_in(const fs::path& path) {
  return array_sample(NpyFile(path).array(""));
}

std::string form_text(DType dtype, const Shape& shape) {
  return sample_form_text(dtype, shape, {});
}

// Files are opened for each reading: there may be more than a process may hold open.
class ArrayFiles : public SampleSource {
 public:
  explicit ArrayFiles(std::vector<fs::path> paths) : paths_(std::move(paths)) {
    const auto first = sample_in(paths_.at(0));
    dtype_ = first->dtype();
    shape_ = first->shape();
    for (std::size_t i = 1; i < paths_.size(); ++i) {
      require_form(*sample_in(paths_[i]), paths_[i]);
    }
  }

  std::int64_t size() const override { return std::ssize(paths_); }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  std::string name(std::int64_t sample) const override {
    return printable(path_of(sample).string(), kMaxPathBytes);
  }
  std::string raw_name(std::int64_t sample) const override { return path_of(sample).string(); }

  void read(std::int64_t sample, Rng* random, void* to) const override {
    const auto source = sample_in(path_of(sample));
    require_form(*source, path_of(sample));
    source->read(0, random, to);
  }

 private:
  const fs::path& path_of(std::int64_t sample) const {
    return paths_.at(static_cast<std::size_t>(sample));
  }
  void require_form(const SampleSource& source, const fs::path& path) const {
    if (source.dtype() == dtype_ && source.shape() == shape_) return;
    throw InputError(printable(path.string(), kMaxPathBytes) + ": expected a sample " +
                     form_text(dtype_, shape_) + " as " + printable(paths_[0].filename().string()) +
                     " is, got " + form_text(source.dtype(), source.shape()));
  }

  std::vector<fs::path> paths_;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

}  // namespace

std::shared_ptr<const SampleSource> array_files(std::vector<fs::path> paths) {
  return std::make_shared<ArrayFiles>(std::move(paths));
}

}  // namespace steelyard
