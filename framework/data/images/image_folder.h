// Images in folders, one for each class, or listed in a table.
#pragma once

#include <filesystem>
#include <memory>
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
  std::string content_digest(std::int64_t index) const override;

 private:
  std::vector<std::string> paths_;
};

// Every image in the folder and the folders in it, sorted by its path; hidden files are left out.
// Throws InputError for a file that is no image by its name, for something else than files and
// folders, for folders that links make endless, and where there is no image.
std::vector<std::string> image_paths(const std::filesystem::path& folder);

// The folder `request.path` holds, for the train and the test set each, a folder of one folder for
// each class, or a table train.csv (or .tsv) of the columns path and label; paths are relative to
// the table. Or it holds the folders of the classes alone, where `request.test_samples` are set
// aside. Classes are sorted, by number where all of them are numbers. Throws InputError.
DatasetSplits load_images(const DatasetRequest& request);

}  // namespace steelyard
