#include "steelyard/framework/data/shards/shard_dataset.h"

#include <algorithm>
#include <memory>
#include <span>

#include "steelyard/framework/data/shards/tar.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

// Where an image is.
struct ShardImage {
  std::uint32_t shard = 0;
  std::uint32_t bytes = 0;
  std::uint64_t begin = 0;
  std::string name = {};
};

struct Shards {
  std::vector<std::unique_ptr<const InputFile>> files = {};
  std::vector<ShardImage> images = {};
  std::vector<std::string> classes = {};  // of each image

  // The archive and the image.
  std::string name(std::size_t index) const {
    const ShardImage& image = images.at(index);
    return printable(files[image.shard]->path().string(), kMaxPathBytes) + ": " +
           printable(image.name, kMaxPathBytes);
  }
};

class ShardImages : public ImageSource {
 public:
  explicit ShardImages(Shards shards) : shards_(std::move(shards)) {}

  std::int64_t size() const override { return std::ssize(shards_.images); }
  std::string name(std::int64_t index) const override {
    return shards_.name(static_cast<std::size_t>(index));
  }
  Image image(std::int64_t index, std::int64_t channels, std::string* digest) const override {
    const std::string bytes = bytes_of(index);
    if (digest != nullptr) *digest = sha256_of(bytes);
    return decode_image(bytes, channels, name(index));
  }
  std::string content_digest(std::int64_t index) const override {
    return sha256_of(bytes_of(index));
  }

 private:
  const ShardImage& image_at(std::int64_t index) const {
    return shards_.images.at(static_cast<std::size_t>(index));
  }
  std::string bytes_of(std::int64_t index) const {
    const ShardImage& at = image_at(index);
    std::string bytes(at.bytes, '\0');
    shards_.files[at.shard]->read(at.begin, bytes.data(), bytes.size());
    return bytes;
  }

  Shards shards_;
};

// "a/b.c.jpg" is the key "a/b" and the extension "c.jpg".
std::size_t point_of(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return std::min(name.find('.', slash == std::string::npos ? 0 : slash + 1), name.size());
}

std::string member_label(const InputFile& file, const TarMember& member, bool may_be_empty) {
  const std::uint64_t longest = may_be_empty ? kMaxTargetText : 256;
  if (member.size > longest) throw InputError(member.name + ": expected the name of a class");
  std::string text(member.size, '\0');
  file.read(member.begin, text.data(), text.size());
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos && may_be_empty) return "";
  if (begin == std::string::npos) throw InputError(member.name + ": expected the name of a class");
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
  if (!may_be_empty && text.find('\n') != std::string::npos) {
    throw InputError(member.name + ": expected the name of a class, got several lines");
  }
  return text;
}

// The files of one sample: those of one key, one after the other.
struct SampleFiles {
  std::string key;
  std::span<const TarMember> members;
};

std::string key_of(const TarMember& member) { return member.name.substr(0, point_of(member.name)); }

// The first sample of `members`.
SampleFiles first_sample(std::span<const TarMember> members) {
  const std::string key = key_of(members[0]);
  const auto end =
      std::ranges::find_if(members, [&](const TarMember& member) { return key_of(member) != key; });
  return {key, members.first(static_cast<std::size_t>(end - members.begin()))};
}

[[noreturn]] void refuse_files(const SampleFiles& sample, std::string_view expected,
                               const std::string& got) {
  throw InputError(sample.key + ": expected " + std::string(expected) + ", got " + got);
}

// The only file of a sample whose extension, all that is after the key, is one of those. Others
// than the image and the label are passed over, as WebDataset does.
const TarMember& only_file(const SampleFiles& sample, std::span<const std::string> extensions,
                           std::string_view expected) {
  const TarMember* found = nullptr;
  for (const TarMember& member : sample.members) {
    const std::string extension = in_lower_case(member.name.substr(sample.key.size()));
    if (std::ranges::find(extensions, extension) == extensions.end()) continue;
    if (found != nullptr) {
      refuse_files(sample, expected, "both " + found->name + " and " + member.name);
    }
    found = &member;
  }
  if (found != nullptr) return *found;
  std::string got;
  for (const TarMember& member : sample.members) got += (got.empty() ? "" : ", ") + member.name;
  refuse_files(sample, expected, got);
}

void add_sample(const InputFile& file, std::uint32_t shard, const SampleFiles& sample,
                const DatasetRequest& request, Shards& shards) {
  const TargetOptions& targets = request.targets;
  const std::string label = targets.kind == TargetKind::kText ? ".txt" : ".cls";
  const TarMember& image =
      only_file(sample, image_extensions(), "an image " + sample.key + ".jpg or the like");
  if (image.size > kMaxImageFileBytes) {
    throw InputError(image.name + ": expected at most " + std::to_string(kMaxImageFileBytes) +
                     " bytes, got " + std::to_string(image.size));
  }
  shards.images.push_back({shard, static_cast<std::uint32_t>(image.size), image.begin, image.name});
  if (!request.labels) return;
  const TarMember& text = only_file(sample, std::span(&label, 1), "a text " + sample.key + label);
  shards.classes.push_back(member_label(file, text, targets.may_be_empty()));
}

void add_shard(const fs::path& path, const DatasetRequest& request, Shards& shards) {
  const auto shard = static_cast<std::uint32_t>(shards.files.size());
  const InputFile& file = *shards.files.emplace_back(std::make_unique<const InputFile>(path));
  std::vector<TarMember> members = tar_members(file);
  std::erase_if(members, [](const TarMember& member) {  // as of folders
    return fs::path(member.name).filename().string().starts_with('.');
  });
  try {
    std::span<const TarMember> rest(members);
    while (!rest.empty()) {
      const SampleFiles sample = first_sample(rest);
      add_sample(file, shard, sample, request, shards);
      rest = rest.subspan(sample.members.size());
    }
  } catch (const InputError& error) {
    throw InputError(printable(path.string()) + ": " + printable(error.what()));
  }
}

// The archives of a part of the data; an index next to them is passed over.
std::vector<fs::path> shard_paths(const fs::path& folder, const std::string& split) {
  std::vector<fs::path> paths;
  for (const fs::path& path : folder_entries(folder)) {
    const std::string name = in_lower_case(path.filename().string());
    if (!path.filename().string().starts_with(split)) continue;
    for (const char* packed : {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4"}) {
      if (!name.ends_with(packed)) continue;
      throw InputError(printable(path.string()) +
                       ": expected an archive without compression, in which samples are found by "
                       "their place: unpack it to .tar");
    }
    if (name.ends_with(".tar")) paths.push_back(path);
  }
  return paths;
}

Dataset load_split(const std::vector<fs::path>& paths, const DatasetRequest& request,
                   const std::vector<std::string>& known) {
  Shards shards;
  for (const fs::path& path : paths) add_shard(path, request, shards);
  const std::string source = printable(request.path.string());
  if (shards.images.empty()) throw InputError(source + ": the archives hold no samples");
  Dataset dataset;
  if (request.labels) {
    set_targets(dataset, shards.classes, request.targets, known,
                {source, [&](std::size_t i) { return shards.name(i); }});
    shards.classes.clear();
  }
  dataset.source = image_samples(std::make_shared<ShardImages>(std::move(shards)),
                                 request.transforms.value_or(ImageTransforms{}));
  if (!request.labels) drop_targets(dataset);
  return dataset;
}

}  // namespace

DatasetSplits load_shards(const DatasetRequest& request) {
  const std::string source = printable(request.path.string());
  require_folder(request.path, "of archives");
  std::vector<std::string> classes = request.known_classes();
  const std::vector<fs::path> train = shard_paths(request.path, "train");
  const std::vector<fs::path> test = shard_paths(request.path, "test");
  const bool needs_train =
      request.parts == DatasetParts::kAll || test.empty() || (request.labels && classes.empty());
  if (needs_train && train.empty()) throw InputError(source + ": expected archives train*.tar");
  DatasetSplits splits;
  if (needs_train) {
    splits.train = load_split(train, request, classes);
    classes = splits.train.names.classes;
  }
  if (test.empty()) return splits;
  splits.test = load_split(test, request, classes);
  if (needs_train) require_same_samples(splits, source + ": the test set", "the training set");
  return splits;
}

}  // namespace steelyard
