// Images in folders, one for each class, or listed in a table; or in any folders, without labels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"
#include "steelyard/framework/data/images/transforms.h"

namespace steelyard {

// Files that are read when they are asked for.
class ImageFiles : public ImageSource {
 public:
  explicit ImageFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  std::int64_t size() const override { return std::ssize(paths_); }
  Image image(std::int64_t index, std::int64_t channels, std::string* digest) const override;
  std::string name(std::int64_t index) const override;
  std::string raw_name(std::int64_t index) const override {
    return paths_.at(static_cast<std::size_t>(index));
  }
  std::string content_digest(std::int64_t index) const override;

 private:
  std::vector<std::string> paths_;
};

// Files beside images: hidden ones, and those whose names are not those of images.
struct OtherFiles {
  std::int64_t count = 0;
  std::vector<std::string> first = {};  // a few of their paths

  void add(const std::filesystem::path& path);
  void add(const OtherFiles& others);
  // A note that names the first of them, relative to the folder, beside files that are of `kind`;
  // nothing where there is none.
  std::optional<std::string> note(const std::filesystem::path& folder,
                                  const std::string& kind = "image") const;
};

// What to do with the path of an image that cannot be read: a link to nothing or back to a folder
// above it, another format.
enum class UnreadableImages {
  kRefuse,  // an InputError: data would be lost
  kList     // among the others: reading it says what is wrong
};

struct FoundImages {
  std::vector<std::string> paths = {};
  OtherFiles others = {};
};

// Every image in the folder and the folders in it, sorted by its path. Throws InputError where
// there is no image, and as `unreadable` says.
FoundImages find_images(const std::filesystem::path& folder, UnreadableImages unreadable);

// The folder `request.path` holds, for the train and the test set each, a folder of one folder for
// each class, or a table train.csv (or .tsv) of the columns path and label; paths are relative to
// the table. Or it holds the folders of the classes alone, where `request.test_samples` are set
// aside. Classes are sorted, by number where all of them are numbers. Without labels: a folder of
// images at any depth, or train and test of such folders, or one image. Other files than images are
// left out, with a note. Throws InputError.
DatasetSplits load_images(const DatasetRequest& request);

}  // namespace steelyard
