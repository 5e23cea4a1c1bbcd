#include "steelyard/framework/data/images/image_folder.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "steelyard/framework/data/tables/csv.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

struct LabelledFiles {
  std::string source;  // for messages
  std::vector<std::string> paths = {};
  std::vector<std::string> classes = {};  // of each path
  std::vector<std::int64_t> lines = {};   // of a table: of each path
  std::optional<std::string> note = {};   // about what was left out

  std::string place(std::size_t index) const {
    return lines.empty() ? source : source + ":" + std::to_string(lines[index]);
  }
};

std::string shown(const fs::path& path) { return printable(path.string()); }

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool names_image(const std::string& file) {
  return has_image_extension(file) || has_other_image_extension(file);
}

// Finds the images of a folder and of the folders in it.
class ImageFinder {
 public:
  explicit ImageFinder(UnreadableImages unreadable) : unreadable_(unreadable) {}

  FoundImages found() { return std::move(found_); }

  void visit(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (error) throw InputError(shown(folder) + ": " + error.message());
    if (!above_.insert(real).second) {
      if (unreadable_ == UnreadableImages::kList) {
        found_.paths.push_back(folder.string());
        return;
      }
      throw InputError(shown(folder) + ": links lead back to " + shown(real) +
                       ", which is above it");
    }
    for (const fs::path& entry : folder_entries(folder)) {
      if (is_hidden(entry)) {
        found_.others.add(entry);
      } else {
        visit_entry(entry);
      }
    }
    above_.erase(real);
  }

 private:
  void visit_entry(const fs::path& entry) {
    std::error_code error;
    const fs::file_status status = fs::status(entry, error);
    const std::string name = entry.filename().string();
    const bool regular = fs::is_regular_file(status);
    if (fs::is_directory(status)) {
      visit(entry);
    } else if (regular && !names_image(name)) {
      found_.others.add(entry);
    } else if (regular && has_image_extension(name)) {
      found_.paths.push_back(entry.string());
    } else if (unreadable_ == UnreadableImages::kList && names_image(name)) {
      found_.paths.push_back(entry.string());
    } else if (unreadable_ == UnreadableImages::kList) {
      found_.others.add(entry);
    } else if (error) {
      throw InputError(shown(entry) + ": " + error.message());
    } else if (regular) {
      throw InputError(shown(entry) + ": expected images named .jpg, .jpeg, .png, .webp or .bmp");
    } else {
      throw InputError(shown(entry) + ": expected a file or a folder");
    }
  }

  UnreadableImages unreadable_;
  std::set<fs::path> above_;  // the folders that lead here, without links
  FoundImages found_;
};

// One folder for each class.
LabelledFiles files_of_folders(const fs::path& folder) {
  LabelledFiles files{shown(folder)};
  OtherFiles others;
  for (const fs::path& entry : folder_entries(folder)) {
    std::error_code error;
    const fs::file_status status = fs::status(entry, error);
    const std::string name = entry.filename().string();
    if (is_hidden(entry) || (fs::is_regular_file(status) && !names_image(name))) {
      others.add(entry);
      continue;
    }
    if (error) throw InputError(shown(entry) + ": " + error.message());
    if (!fs::is_directory(status)) {
      throw InputError(shown(entry) + ": expected one folder of images for each class");
    }
    FoundImages found = find_images(entry, UnreadableImages::kRefuse);
    others.add(found.others);
    for (std::string& path : found.paths) {
      files.paths.push_back(std::move(path));
      files.classes.push_back(name);
    }
  }
  if (files.paths.empty()) {
    throw InputError(files.source + ": expected folders of images, one for each class");
  }
  files.note = others.note(folder);
  return files;
}

// The columns path and label, in any order; without `targets`, labels are not read, and may be
// absent.
LabelledFiles files_of_table(const fs::path& table, const std::optional<TargetOptions>& targets) {
  CsvReader reader(table, delimiter_of(table, std::nullopt));
  CsvRecord row;
  const std::vector<std::string> columns{"path", "label"};
  const bool is_there = reader.next(row);
  for (std::string& name : row.fields) name = trimmed(name);
  const bool paths_alone = !targets && row.fields == std::vector<std::string>{"path"};
  if (!is_there || !(paths_alone || std::ranges::is_permutation(row.fields, columns))) {
    reader.fail(1, "expected the columns path and label, and no other, in the first line");
  }
  const std::size_t path_at = row.fields[0] == "path" ? 0 : 1, label_at = 1 - path_at;
  const std::size_t count = row.fields.size();
  LabelledFiles files{reader.name()};
  std::unordered_map<std::string, std::size_t> known;  // where each path is
  while (reader.next(row)) {
    const bool complete = row.fields.size() == count;
    std::string label = complete && targets ? row.fields[label_at] : "";
    if (targets && targets->kind != TargetKind::kText) label = trimmed(label);
    const bool has_label = !targets || !label.empty() || targets->may_be_empty();
    if (!complete || row.fields[path_at].empty() || !has_label) {
      reader.fail(row.line, paths_alone ? "expected a path" : "expected a path and a label");
    }
    const fs::path path = table.parent_path() / row.fields[path_at];
    if (!path_exists(path)) reader.fail(row.line, "there is no file " + shown(path));
    if (is_folder(path)) reader.fail(row.line, "expected a file, got the folder " + shown(path));
    const auto [found, is_new] =
        known.emplace(path.lexically_normal().string(), files.paths.size());
    // A file that is there twice counts twice: so are rare classes weighed.
    if (targets && !is_new && !same_target(label, files.classes[found->second], *targets)) {
      reader.fail(row.line, shown(path) + " has the label '" + printable(label) + "' here and '" +
                                printable(files.classes[found->second]) + "' in line " +
                                std::to_string(files.lines[found->second]));
    }
    files.paths.push_back(path.string());
    files.classes.push_back(std::move(label));
    files.lines.push_back(row.line);
  }
  if (files.paths.empty()) reader.fail(1, "expected rows beneath the names of the columns");
  return files;
}

Dataset dataset_of(LabelledFiles files, const std::vector<std::string>& known,
                   const DatasetRequest& request) {
  Dataset dataset;
  set_targets(dataset, files.classes, request.targets, known,
              {files.source, [&](std::size_t i) { return files.place(i); }});
  dataset.source = image_samples(std::make_shared<ImageFiles>(std::move(files.paths)),
                                 request.transforms.value_or(ImageTransforms{}));
  return dataset;
}

Dataset without_targets(std::vector<std::string> paths, const DatasetRequest& request) {
  Dataset dataset;
  dataset.source = image_samples(std::make_shared<ImageFiles>(std::move(paths)),
                                 request.transforms.value_or(ImageTransforms{}));
  drop_targets(dataset);
  return dataset;
}

// The images of a split, in a folder of any depth or listed in a table; nothing where neither is.
std::optional<FoundImages> find_unlabelled_split(const fs::path& folder, const std::string& split) {
  if (is_folder(folder / split)) return find_images(folder / split, UnreadableImages::kRefuse);
  const fs::path table = only_one_of(folder, {split + ".csv", split + ".tsv"});
  if (table.empty()) return std::nullopt;
  return FoundImages{files_of_table(table, std::nullopt).paths};
}

DatasetSplits load_unlabelled_folder(const fs::path& folder, const DatasetRequest& request) {
  std::optional<FoundImages> train = find_unlabelled_split(folder, "train");
  std::optional<FoundImages> test = find_unlabelled_split(folder, "test");
  const bool has_splits = train || test;
  if (!has_splits) train = find_images(folder, UnreadableImages::kRefuse);
  const bool needs_train = request.parts == DatasetParts::kAll || !test;
  if (needs_train && !train) {
    throw InputError(shown(folder) + ": expected images in train, beside those in test");
  }
  DatasetSplits splits;
  const auto load = [&](FoundImages found, const fs::path& from) {
    if (auto note = found.others.note(from)) splits.notes.push_back(*std::move(note));
    return without_targets(std::move(found.paths), request);
  };
  if (needs_train) splits.train = load(*std::move(train), has_splits ? folder / "train" : folder);
  if (!test) return splits;
  splits.test = load(*std::move(test), folder / "test");
  if (needs_train) require_same_samples(splits, shown(folder / "test"), "the training set");
  return splits;
}

DatasetSplits load_unlabelled(const DatasetRequest& request) {
  const fs::path& path = request.path;
  if (is_folder(path) || !path_exists(path)) {
    require_folder(path, "of images, or an image");
    return load_unlabelled_folder(path, request);
  }
  if (has_image_extension(path.filename().string())) {
    return {without_targets({path.string()}, request), {}};
  }
  throw InputError(shown(path) +
                   ": expected a folder of images, or an image named .jpg, .jpeg, .png, .webp or "
                   ".bmp");
}

// The folder or the table of a split, one of which may be there; nothing where neither is.
std::optional<LabelledFiles> find_split(const fs::path& folder, const std::string& split,
                                        const TargetOptions& targets) {
  const fs::path found = only_one_of(folder, {split, split + ".csv", split + ".tsv"});
  if (found.empty()) return std::nullopt;
  return is_folder(found) ? files_of_folders(found) : files_of_table(found, targets);
}

}  // namespace

Image ImageFiles::image(std::int64_t index, std::int64_t channels, std::string* digest) const {
  return read_image(paths_.at(static_cast<std::size_t>(index)), channels, digest);
}

std::string ImageFiles::name(std::int64_t index) const {
  return printable(paths_.at(static_cast<std::size_t>(index)), kMaxPathBytes);
}

std::string ImageFiles::content_digest(std::int64_t index) const {
  return sha256_of_file(paths_.at(static_cast<std::size_t>(index)));
}

void OtherFiles::add(const fs::path& path) {
  constexpr std::size_t kMostNamed = 5;
  ++count;
  if (first.size() < kMostNamed) first.push_back(path.string());
}

void OtherFiles::add(const OtherFiles& others) {
  for (const std::string& path : others.first) add(path);
  count += others.count - std::ssize(others.first);
}

std::optional<std::string> OtherFiles::note(const fs::path& folder, const std::string& kind) const {
  if (count == 0) return std::nullopt;
  std::string names;
  for (const std::string& path : first) {
    names += (names.empty() ? "" : ", ") + shown(fs::path(path).lexically_relative(folder));
  }
  if (const std::int64_t more = count - std::ssize(first); more > 0) {
    names += " and " + std::to_string(more) + " more";
  }
  return shown(folder) + ": left out " +
         (count == 1
              ? "a file that is no " + kind + " by its name: "
              : std::to_string(count) + " files that are no " + kind + "s by their names: ") +
         names;
}

FoundImages find_images(const fs::path& folder, UnreadableImages unreadable) {
  ImageFinder finder(unreadable);
  finder.visit(folder);
  FoundImages found = finder.found();
  if (!found.paths.empty()) return found;
  const auto note = found.others.note(folder);
  throw InputError(shown(folder) + ": expected images in the folder" +
                   (note ? "; " + note->substr(shown(folder).size() + 2) : ""));
}

DatasetSplits load_images(const DatasetRequest& request) {
  if (!request.labels) return load_unlabelled(request);
  const fs::path& folder = request.path;
  require_folder(folder, "of images");
  std::vector<std::string> classes = request.known_classes();
  std::optional<LabelledFiles> train = find_split(folder, "train", request.targets);
  std::optional<LabelledFiles> test = find_split(folder, "test", request.targets);
  if (!train && !test && request.test_samples) train = files_of_folders(folder);
  const bool needs_train = request.parts == DatasetParts::kAll || !test || classes.empty();
  if (!train && needs_train) {
    throw InputError(shown(folder) +
                     ": expected train and test, each a folder of one folder for each class, or a "
                     "table train.csv and test.csv of path and label; of one folder for each class "
                     "alone, data.test says how many samples are the test set");
  }
  DatasetSplits splits;
  for (const auto* files : {needs_train ? &train : nullptr, &test}) {
    if (files != nullptr && *files && (*files)->note) splits.notes.push_back(*(*files)->note);
  }
  if (needs_train) {
    splits.train = dataset_of(std::move(*train), classes, request);
    classes = splits.train.names.classes;
  }
  if (test) {
    splits.test = dataset_of(std::move(*test), classes, request);
    if (needs_train) require_same_samples(splits, shown(folder / "test"), "the training set");
  }
  return splits;
}

}  // namespace steelyard
